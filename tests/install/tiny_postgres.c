/*
 * tiny_postgres.c: is the library for PostgreSQL found?  No server is needed to tell.
 */
#include <durite/durite.h>

int main(void) {
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    int code = dur_open(&store, "postgres://127.0.0.1:1/nobody", &err);
    fprintf(stderr, "%s: %s\n", dur_code_name(code), err.message);
    return code == DUR_OK || code == DUR_ENOTFOUND || code == DUR_EINVAL;
}
