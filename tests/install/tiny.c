/*
 * tiny.c: the smallest program that needs the library and its dependencies.
 */
#include <durite/durite.h>
#include <string.h>

int main(void) {
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    if (strcmp(dur_version(), DUR_VERSION) != 0) return 1;
    if (dur_open(&store, "sqlite:tiny.db", &err) != DUR_OK) {
        fprintf(stderr, "%s: %s\n", err.op, err.message);
        return 2;
    }
    int code = strcmp(dur_provider_name(store), "sqlite") == 0 ? 0 : 3;
    dur_provider_close(store);
    return code;
}
