#!/bin/sh
# tools.sh: run-tests, check-includes, evidence and deps must notice what they are there for.
# usage: tools.sh SOURCE      TAP on standard output; the current folder is used for everything.
set -u
tools=$1/tools
number=0 failed=0
tab=$(printf '\t')

check() { # NAME: the status of the last command decides
    status=$?
    number=$((number + 1))
    if [ $status -eq 0 ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        sed 's/^/# /' output 2>/dev/null
        failed=1
    fi
}
contains() { grep -qF -- "$1" output; }

# ---- run-tests: a build folder with programs that end in every way there is --------------------------------------------

program() { # NAME KIND LIMIT, script on standard input
    mkdir -p build
    { echo '#!/bin/sh'; cat; } >"build/$1.sh"
    chmod +x "build/$1.sh"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t\n' "$1" "$2" "$3" "${4:-0}" "${5:--}" "$PWD/build/$1.sh" >>build/tests.manifest
}
fresh() { rm -rf build; mkdir build; }
run() { "$tools/run-tests" "$@" build >output 2>&1; }

fresh
program good unit 10 <<'END'
echo 1..2; echo "ok 1 - first"; echo "ok 2 - second"
END
run && contains "2 passed, 0 failed" && grep -qx "ok good/second" build/test-report.tap
check "run_tests_reports_each_case_that_passed"

program bad unit 10 <<'END'
echo 1..2; echo "ok 1 - first"; echo "not ok 2 - second"; echo "# because"; exit 1
END
! run && contains "3 passed, 1 failed" && contains "because" && grep -qx "not ok bad/second" build/test-report.tap
check "run_tests_shows_a_failure_with_its_output"

fresh
program crash unit 10 <<'END'
echo 1..2; echo "ok 1 - first"; kill -SEGV $$
END
! run && grep -qx "not ok crash/ended-by-signal-11" build/test-report.tap
check "run_tests_sees_a_crash_after_a_case_that_passed"

fresh
program slow unit 1 <<'END'
echo 1..1; sleep 30; echo "ok 1 - first"
END
! DURITE_TEST_LIMIT_LEAST=1 run && grep -qx "not ok slow/time-limit" build/test-report.tap
check "run_tests_ends_what_takes_too_long"

fresh
program silent unit 10 <<'END'
exit 0
END
! run && grep -qx "not ok silent/ran-no-test" build/test-report.tap
check "run_tests_refuses_a_program_without_a_test"

fresh
program short unit 10 <<'END'
echo 1..3; echo "ok 1 - first"
END
! run && grep -qx "not ok short/ended-early-after-1-of-3" build/test-report.tap
check "run_tests_counts_what_was_planned"

fresh
program code unit 10 <<'END'
echo 1..1; echo "ok 1 - first"; exit 3
END
! run && grep -qx "not ok code/exit-code-3" build/test-report.tap
check "run_tests_sees_an_exit_code_behind_passing_cases"

fresh
program shown example 10 <<'END'
[ "$DURITE_DOUBLE_RUN" = 1 ] && echo hello
END
run && grep -qx "ok shown/run" build/test-report.tap
check "run_tests_judges_an_example_by_its_exit_code"

fresh
program skips unit 10 <<'END'
echo 1..2; echo "ok 1 - first"; echo "ok 2 - second # SKIP no database"
END
run && contains "1 passed, 0 failed" && contains "no database"
check "run_tests_does_not_count_what_was_skipped"

fresh
program store e2e 10 1 sqlite: <<'END'
echo 1..1
[ "$1" = "$DURITE_TEST_URL" ] && case $1 in sqlite:/*/store.db) echo "ok 1 - url" ;; *) echo "not ok 1 - url" ;; esac
END
program plain unit 10 <<'END'
echo 1..1; echo "ok 1 - no url"
END
run && contains "2 passed, 0 failed" && run --threads && contains "1 passed, 0 failed" &&
    run --kinds unit && grep -qx "ok plain/no url" build/test-report.tap && contains "1 passed, 0 failed"
check "run_tests_gives_a_store_and_selects_by_kind_and_threads"

! run --match nothing && contains "0 passed, 0 failed"
check "run_tests_fails_when_nothing_was_selected"

# ---- soak --------------------------------------------------------------------------------------------------------------

fresh
program breaks fault 10 <<'END'
echo 1..1; echo "not ok 1 - breaks at $DURITE_TEST_SCALE percent"; exit 1
END
program fuzzes fuzz 10 <<'END'
echo 1..1; echo "ok 1 - fuzzes"
END
! SCALE=300 "$tools/soak" build faults fuzz >output 2>&1 && contains "breaks at 300 percent" &&
    grep -qE "^faults +FAILED +0 passed, 1 failed" output && grep -qE "^fuzz +passed +1 passed, 0 failed" output
check "soak_runs_every_part_and_sums_them_up"
"$tools/soak" build fuzz >output 2>&1 && ! contains FAILED
check "soak_runs_one_part_alone"

# ---- check-includes: a tree that breaks each law ------------------------------------------------------------------------

law() { # FILE TEXT EXPECTED
    rm -rf tree
    mkdir -p "tree/$(dirname "$1")" tree/src/base
    printf '/* ok.h: nothing */\n' >tree/src/base/ok.h
    printf '/* a file */\n%b\n' "$2" >"tree/$1"
    "$tools/check-includes" "$PWD/tree" >output 2>&1
    status=$?
    if [ -n "$3" ]; then [ $status -eq 1 ] && contains "$3"; else [ $status -eq 0 ]; fi
}
law src/replay/a.c '#include "base/ok.h"\n#include "core/b.h"' ''
check "check_includes_is_silent_on_what_is_allowed"
law src/replay/a.c '#include "provider/b.h"' 'src/replay must not include provider'
check "replay_must_not_include_a_provider"
law src/replay/a.c '#include <pthread.h>' 'must not include <pthread.h>'
check "replay_must_not_include_threads"
law src/replay/a.c '#include <time.h>' 'must not include <time.h>'
check "replay_must_not_include_time"
law src/base/a.c '#include "core/b.h"' 'src/base must not include core'
check "base_knows_nobody"
law src/provider/a.c '#include "runtime/b.h"' 'src/provider must not include runtime'
check "a_provider_must_not_include_the_runtime"
law src/provider/a.c '#include "obs/log_internal.h"' ''
check "a_provider_may_write_log_lines"
law src/provider/a.c '#include "obs/other.h"' 'may include of obs only'
check "a_provider_may_not_include_the_rest_of_obs"
law src/provider/sqlite/a.c '#include "provider/postgres/b.h"' 'must not include provider/postgres'
check "stores_must_not_include_each_other"
law examples/a.c '#include <durite/sys/store.h>' 'must not include <durite/sys/store.h>'
check "examples_use_only_what_users_have"
law tests/e2e/a.c '#include "base/buf.h"' 'tests/e2e'
check "end_to_end_tests_do_not_look_inside"
law src/core/a.c 'void f(char *a) { strcpy(a, "x"); }' 'a.c:2: strcpy()'
check "strcpy_is_banned"
law src/core/a.c 'void f(void) { exit(1); }' 'exit(): a guest'
check "the_library_must_not_exit"
law src/core/a.c 'long f(void) { return time(0); }' 'time(): time is injected'
check "time_is_injected"
law src/core/a.c '/* exit(1) and "strcpy(" */\nint f(struct s *x) { return x->exit(0); } /* time(0) */' ''
check "comments_strings_and_members_are_not_calls"
law src/core/ok.h '' 'the name of this file is taken'
check "file_names_are_unique"
law src/core/a.c "$(printf 'int x; /* %0120d */' 0)" 'longer than 125 columns'
check "lines_have_a_limit"

# ---- check-parity: the page as it is, where every test passed; then with one fault each ---------------------------------

mkdir -p parity/tools parity/docs parity/include build
cp -r "$1/include/durite" parity/include/
cp "$tools/check-parity" "$tools/exported-symbols.txt" parity/tools/
page=parity/docs/parity.md
passed() { awk -F'|' '/^\| 1\./ { gsub(/ /, "", $5); sub(/\/$/, "/all", $5); print "ok " $5 }' "$1/docs/parity.md" >build/test-report.tap; }
parity() { parity/tools/check-parity build >output 2>&1; }
passed "$1"
cp "$1/docs/parity.md" $page
parity && contains " capabilities, 0 wrong"
check "check_parity_accepts_a_page_that_is_true"
grep -v '^| 1\.4\.3 |' "$1/docs/parity.md" >$page
! parity && contains "missing: 1.4.3"
check "check_parity_misses_a_capability"
sed '/^| 1\.1\.1 |/s/dur_instance_id/dur_instance_idea/' "$1/docs/parity.md" >$page
! parity && contains "not in the interface: dur_instance_idea"
check "check_parity_knows_what_is_exported"
sed '/^| 1\.2\.13 |/s/attempts_max/attempts_most/' "$1/docs/parity.md" >$page
! parity && contains "not in the interface: dur_retry.attempts_most"
check "check_parity_knows_the_members_of_structs"
cp "$1/docs/parity.md" $page
sed -i '1s/^ok/not ok/' build/test-report.tap
! parity && contains "not passed:"
check "check_parity_wants_tests_that_passed"

# ---- evidence: records of runs, the page and the sentence that say them -----------------------------------------------

"$tools/evidence" --check >output 2>&1
check "evidence_is_what_its_records_say"
mkdir -p evidence/tools evidence/docs
cp "$tools/evidence" evidence/tools/
printf '| # | a | b | test | c |\n| H1 | a | b | `sim`, seed 5 | c |\n' >evidence/docs/faults.md
printf 'Before\n<!-- evidence -->\nold\n<!-- /evidence -->\nbehind\n' >evidence/README.md
: >evidence/docs/evidence.tsv
evidence() { evidence/tools/evidence "$@" >output 2>&1; }
says() { # what a command prints, in its stead
    printf 'printf "%%b" "$SAYS"; exit %d\n' "${1:-0}" >evidence/says
    chmod +x evidence/says
}
page=evidence/docs/evidence.md
SAYS='# on memory\n# 1200 seeds, 0 failed\n# on sqlite\n# 7 seeds, 2 failed\n# 8 seeds, 0 failed\n# sqlite took 90 s\n'
export SAYS
says 1
evidence --run sim --from 40 sh evidence/says
[ $? -eq 1 ] && grep -q "^| .sim. | memory | 1,200 seeds | 0 | .* | .make sim STORES=memory FROM=40 SEEDS=1200. |" $page &&
    grep -q "^| .sim. | sqlite | 15 seeds | 2 | 1 min |" $page && grep -q "| H1 |" $page &&
    [ "$(sed -n '1p;$p' evidence/README.md | tr '\n' ' ')" = "Before behind " ] && ! grep -q old evidence/README.md &&
    grep -q "1,215 seeds" evidence/README.md && evidence --check
check "evidence_records_a_run_and_keeps_its_exit_code"
says
evidence --run sim --from 40 sh evidence/says && grep -q "^| .sim. | memory | 1,200 seeds" $page &&
    evidence --run sim --from 1240 sh evidence/says && grep -q "^| .sim. | memory | 2,400 seeds" $page
check "evidence_counts_the_same_units_once"
SAYS='60 killed, 2 not\n'
evidence --run mutants-engine sh evidence/says && evidence --run mutants-engine sh evidence/says &&
    grep -q "^| .mutants-engine. |  | 62 planted bugs | 60 |" $page && grep -q "Of 62 bugs .* find 60" evidence/README.md
check "evidence_has_planted_bugs_of_the_last_run_only"
SAYS='power: 50 points, 0 lost\npoint 9 (again): gone\ncut off; go on with --kind again --seed 1 --every 1 --from 30\n'
evidence --run crash-disk --from 10 sh evidence/says && grep -q "^| .crash-disk. | sqlite | 70 crash points | 1 |" $page
check "evidence_counts_what_was_done_before_a_cut"
cp evidence/docs/evidence.tsv evidence/before
SAYS='nothing of interest\n'
evidence --run chaos sh evidence/says && contains "nothing to record" && cmp -s evidence/before evidence/docs/evidence.tsv
check "evidence_records_nothing_that_was_not_said"
sed -i 's/70 crash points/71 crash points/' $page
! evidence --check && contains "run tools/evidence"
check "evidence_sees_a_page_that_was_edited"
unset SAYS

# ---- docs/observability.md names what there is ---------------------------------------------------------------------------

named() { # NAMES on standard input
    sort -u | while read -r name; do
        grep -qF "\`$name\`" "$1/docs/observability.md" || echo "docs/observability.md does not name $name"
    done >output
    [ ! -s output ]
}
grep -rhoE 'DUR__(TEXT|NUMBER)\("[a-z_]+"' "$1/src" --include='*.c' | sed 's/.*("//; s/"$//' >fields
[ "$(wc -l <fields)" -gt 50 ] && named "$1" <fields
check "every_field_of_a_log_line_is_in_the_documents"
{ sed -n 's/^ *METRIC(\([a-z_]*\)).*/\1/p' "$1/include/durite/metrics.h"
  sed -n '/^typedef struct dur_op_metrics/,/^} dur_store_metrics/s/^ *\(uint64_t\|dur_histogram\|dur_op_metrics\) \([a-z_]*\);.*/\2/p' "$1/include/durite/metrics.h"
  sed -n '/^typedef struct dur_store_counts/,/^}/s/^ *uint64_t \(.*\);.*/\1/p' "$1/include/durite/client.h" | tr -d ' ' | tr ',' '\n'; } >metrics
[ "$(wc -l <metrics)" -gt 50 ] && named "$1" <metrics
check "every_metric_is_in_the_documents"

# ---- check-abi: a small library that grows, and one that breaks -------------------------------------------------------

if command -v abidiff >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    mkdir -p abi/tools abi/include/durite/sys abi/build
    cp "$tools/check-abi" abi/tools/
    : >abi/include/durite/sys/kit.h; : >abi/include/durite/sys/stress.h
    library() { # MEMBERS PARAMETERS MORE: builds it
        printf '#include <stddef.h>\ntypedef struct dur_sized {\n    size_t size;\n    int a;%s\n} dur_sized;\n' "$1" >abi/include/durite/a.h
        printf '#include <durite/a.h>\nint dur_one(const dur_sized *s%s);\nint dur_one(const dur_sized *s%s) { return s->a; }\n%s\n' "$2" "$2" "$3" >abi/a.c
        for name in libdurite libdurite-testing; do
            (cd abi && cc -g -shared -fPIC -Iinclude a.c -o "build/$name.so.0.1.0") || return 1
        done
    }
    abi() { abi/tools/check-abi "$@" "$PWD/abi/build" >output 2>&1; }
    library '' '' '' && ! abi && contains "is missing" && abi --update && abi && contains "are as in tools/abi"
    check "check_abi_compares_with_a_baseline"
    library ' int b;' '' 'int dur_two(void) { return 2; }' && ! abi && contains "this is an addition" && abi --update && abi
    check "check_abi_wants_additions_in_the_baseline"
    library ' int b;' ', long more' 'int dur_two(void) { return 2; }' && ! abi && contains INCOMPATIBLE && ! abi --update && contains INCOMPATIBLE && ! abi
    check "check_abi_refuses_other_parameters"
    library ' int b;' '' '' && ! abi --update && contains INCOMPATIBLE && abi --update --break && abi
    check "check_abi_refuses_a_function_that_has_gone"
fi

# ---- deps -----------------------------------------------------------------------------------------------------------------

mkdir -p bin
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query
chmod +x bin/dpkg-query
printf '#!/bin/sh\necho "$@" >>installed\n' >bin/apt-get
printf '#!/bin/sh\necho "${FAKE_ID:-0}"\n' >bin/id
printf '#!/bin/sh\n[ "$1" = -n ] && exit 1; exec "$@"\n' >bin/sudo
chmod +x bin/*
deps() { # VARIABLES...: of the environment
    rm -f installed
    env -u CI -u DURITE_NO_INSTALL "PATH=$PWD/bin:$PATH" "$@" "$tools/deps" build </dev/null >output 2>&1
}
deps DURITE_NO_INSTALL=1 CI=1
[ $? -eq 2 ] && contains "missing: libc6-dev cmake" && contains "    apt-get install --no-install-recommends libc6-dev" && [ ! -f installed ]
check "deps_names_what_is_missing"
deps FAKE_ID=0 && grep -q "install -y .*libc6-dev" installed
check "deps_installs_as_root_without_a_terminal"
deps FAKE_ID=1000
[ $? -eq 2 ] && contains "    sudo apt-get install --no-install-recommends libc6-dev" && [ ! -f installed ]
check "deps_says_what_to_type_without_rights_and_terminal"
deps FAKE_ID=1000 CI=1
[ $? -eq 2 ] && contains "no sudo without a password" && [ ! -f installed ]
check "deps_needs_rights_in_ci"
on_terminal() { # ANSWER
    rm -f installed
    echo "$1" | env -u CI -u DURITE_NO_INSTALL "PATH=$PWD/bin:$PATH" script -qec "$tools/deps build" /dev/null >output 2>&1
}
if command -v script >/dev/null; then
    on_terminal n
    [ $? -eq 2 ] && contains "[y/N]" && [ ! -f installed ] && on_terminal y && grep -q "install -y" installed
    check "deps_asks_on_a_terminal"
fi
"$tools/deps" nonsense >output 2>&1
[ $? -eq 2 ] && contains "unknown group nonsense"
check "deps_refuses_an_unknown_group"

echo "1..$number"
exit $failed
