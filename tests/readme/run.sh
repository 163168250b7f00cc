#!/bin/sh
# run.sh: README.md says what is so: its blocks are run as they are printed, its figures stand in docs/performance.md, and
# links of all pages lead somewhere.
# usage: run.sh SOURCE BUILD      TAP on standard output; the current folder is used for everything.
#
# "make" is one of ours that does what the target does with the build that is there; "sudo" does nothing.
set -u
source=$1 build=$2
number=0 failed=0
check() { # NAME COMMAND...
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"step-$number.log" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "step-$number.log"
        failed=1
    fi
}
block() { # KIND N: the Nth block of that kind
    awk -v kind="$1" -v n="$2" '/^```/ { if (inside) inside = 0; else if ($0 == "```" kind && ++at == n) inside = 1; next } inside' "$source/README.md"
}
blocks() { grep -c "^\`\`\`$1\$" "$source/README.md"; }
echo 1..8

mkdir -p bin home work/build
ln -s "$source/examples" work/examples
export HOME="$PWD/home"
cat >bin/make <<END
#!/bin/sh
case \$* in
demo) exec "$build/bin/order-demo" --db demo.db --demo ;;
deb) : ;; # make package-test
amalgamation) exec "$source/tools/amalgamation" build/amalgamation ;;
"install PREFIX="*) exec cmake --install "$build" --prefix "\${2#PREFIX=}" ;;
*) echo "make \$*: not in this test" >&2; exit 2 ;;
esac
END
printf '#!/bin/sh\n' >bin/sudo
chmod +x bin/*
PATH=$PWD/bin:$PATH
export PATH

short() { [ "$(wc -l <"$source/README.md")" -le 150 ]; }
check it_has_at_most_150_lines short

all_blocks() { [ "$(blocks c)" -eq 2 ] && [ "$(blocks sh)" -eq 3 ] && [ "$(blocks console)" -eq 2 ] && [ "$(grep -c '^```' "$source/README.md")" -eq 14 ]; }
check no_block_is_left_out_here all_blocks

snippet() {
    { echo '#include <durite/durite.h>'; block c 1; echo 'const dur_handler handlers[] = { DUR_ORCHESTRATION("Order", "1", order) };'; } >order.c
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$source/include" order.c
}
check the_order_compiles snippet

demo() { # figures differ from run to run, and how many lines there are in between
    (cd work && make demo) >said && cat said && block console 1 | sed '1d; s/[0-9][0-9]*/N/g' | sort -u >wanted
    sed 's/[0-9][0-9]*/N/g' said | sort -u >got
    grep -q ' 0 lost, 0 charged twice' said && [ -z "$(comm -23 wanted got)" ]
}
check the_demo_says_what_is_printed demo

hello() { # the commands, then twice as printed
    block sh "$1" >commands && block c 2 >hello.c && sed '1,/^ \*\//d' "$source/examples/hello.c" | cmp - hello.c || return 1
    rm -f work/hello work/hello.db*
    { echo 'set -e'; cat commands; sed -n 's/^\$ //p' twice; } >script
    (cd work && sh ../script) >said || { cat said; return 1; }
    grep -v '^\$' twice >wanted
    tail -n "$(wc -l <wanted)" said | diff wanted -
}
block console 2 >twice
check hello_runs_from_what_make_installs hello 1
prefix=$HOME/durite
library=$(dirname "$(dirname "$(find "$prefix" -name durite.pc)")")
deb() { PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library hello 2; } # its first two lines: make package-test
check hello_runs_with_what_the_packages_have deb
check hello_runs_from_one_file hello 3

figures() {
    grep -q '216 µs' "$source/docs/performance.md" && grep -q '29,800 (' "$source/docs/performance.md" && grep -q '8 ms / 81 ms' "$source/docs/performance.md" || return 1
    sed -n '/^## Three figures/,/^!/p' "$source/README.md" | grep '^- ' | grep -oE '[0-9][0-9,]* (µs|ms|steps)' >stated
    [ "$(tr '\n' ';' <stated)" = '216 µs;29,800 steps;81 ms;' ] || { cat stated; return 1; }
}
links() { # [text](page) and [text](page#part) of every page, the parts aside
    find "$source/README.md" "$source/ARCHITECTURE.md" "$source/CONTRIBUTING.md" "$source/SECURITY.md" "$source/docs" -name '*.md' | while read -r page; do
        grep -oE '\]\([^)#: ]+[)#]' "$page" | sed 's/^](//; s/.$//' | while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: no $link"
        done
    done >broken
    cat broken
    [ ! -s broken ]
}
figures_and_links() { figures && links; }
check its_figures_are_measured_and_links_lead_somewhere figures_and_links
exit $failed
