#!/bin/sh
# program.sh: the program durite-kit: what it lists, chooses and answers.
# usage: program.sh DURITE_KIT SOURCE      TAP on standard output; the current folder is used for everything.
set -u
kit=$1 source=$2
number=0 failed=0

check() { # NAME: the status of the last command decides
    status=$?
    number=$((number + 1))
    if [ $status -eq 0 ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        head -20 output | sed 's/^/# /'
        failed=1
    fi
}
last_line() { [ "$(tail -1 output)" = "$1" ]; }

# reference.list has 231 of the 233 validations of the original, category and name; docs/parity.md has the other two.
"$kit" --list | grep -v '^ours_' | sort >listed
sort "$source/tests/kit/reference.list" | diff listed - >output
check "list_names_every_validation_of_the_reference_once"

"$kit" --list | awk '{ print $2 }' | sort | uniq -d >output
[ ! -s output ]
check "no_name_comes_twice"

"$kit" --list --only stats/ >output && [ "$(grep -c '^stats ' output)" -eq 8 ] && [ "$(wc -l <output)" -eq 8 ]
check "list_names_only_what_only_chooses"

"$kit" memory: --only 'prune_*' >output && last_line "4 passed, 0 failed, 0 skipped (4 of the reference)"
check "only_takes_patterns"

"$kit" memory: --only no_such_check >output 2>&1
[ $? -eq 2 ] && grep -q 'no check is called "no_such_check"' output
check "a_pattern_that_chooses_nothing_is_an_error"

"$kit" memory: --shared --only custom_status/ --repeat 3 >output && last_line "21 passed, 0 failed, 0 skipped (7 of the reference)"
check "shared_runs_the_chosen_ones"

"$kit" memory: --shared --only get_system_metrics >output && grep -q 'SKIP it needs a store of its own: get_system_metrics' output
check "what_cannot_be_shared_says_so"

mkdir -p left && "$kit" sqlite:left/k --only ours_owners >output && ls left >output && [ ! -s output ]
check "nothing_is_left_of_its_files"

echo "1..$number"
exit $failed
