#include "kit_internal.h"
int dur_kit_compare(const dur_kit_factory *left, const dur_kit_factory *right,
                    const dur_kit_compare_options *options, char **story, dur_error *err) {
    (void)left; (void)right; (void)options; (void)story;
    return dur_error_set(err, DUR_EUNSUPPORTED, false, "kit.compare", "not yet");
}
