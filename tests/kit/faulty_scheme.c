/*
 * faulty_scheme.c: "minimal:URL" is the store of URL without its optional methods, so that the kit can judge the
 * fallbacks; "faulty:URL" is it behind the decorator for tests, without a fault.
 */
#include "support/faulty.h"

#include <string.h>

int faulty_register(dur_error *err);

static int open_minimal(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur_provider *inner = NULL;
    int code = dur_open_ex(&inner, url + strlen("minimal:"), options, err);
    return code == DUR_OK ? dur__minimal_wrap(out, inner, err) : code;
}

static int open_faulty(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur_provider *inner = NULL;
    int code = dur_open_ex(&inner, url + strlen("faulty:"), options, err);
    return code == DUR_OK ? dur__faulty_wrap(out, inner, 1, err) : code;
}

int faulty_register(dur_error *err) {
    int code = dur_provider_register("minimal", open_minimal, err);
    return code == DUR_OK ? dur_provider_register("faulty", open_faulty, err) : code;
}
