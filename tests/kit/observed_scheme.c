/*
 * observed_scheme.c: "observed:URL" is the store of URL behind dur_observe, so that the kit can judge the decorator as
 * if it were a store of its own.
 */
#include <durite/metrics.h>
#include <durite/provider.h>
#include <string.h>

int observed_register(dur_error *err);

static int open_observed(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur_provider *inner = NULL;
    int code = dur_open_ex(&inner, url + strlen("observed:"), options, err);
    if (code == DUR_OK) code = dur_observe(out, inner, err);
    dur_provider_close(inner);
    return code;
}

int observed_register(dur_error *err) {
    return dur_provider_register("observed", open_observed, err);
}
