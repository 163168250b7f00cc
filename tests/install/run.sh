#!/bin/sh
# run.sh: install into an empty folder, then build and run a tiny program against it, the ways that users do.
# usage: run.sh BUILD      TAP on standard output; the current folder is used for everything.
set -u
build=$1
here=$(cd "$(dirname "$0")" && pwd)
prefix=$PWD/prefix
cc=${CC:-cc}
cxx=${CXX:-c++}
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
echo 1..15

check installs cmake --install "$build" --prefix "$prefix"
pc=$(find "$prefix" -name durite.pc | head -n 1)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"

soname() { [ -L "$lib/libdurite.so" ] && [ -L "$lib/libdurite.so.0" ] && readelf -d "$lib/libdurite.so" | grep -q 'SONAME.*libdurite\.so\.0\]'; }
check the_shared_library_has_its_soname soname
headers() { [ -f "$prefix/include/durite/durite.h" ] && [ -f "$prefix/include/durite/sys/store.h" ] && [ -f "$prefix/include/durite/durite.hpp" ]; }
check the_headers_are_there headers

shared() {
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 "$here/tiny.c" -o tiny-shared $(pkg-config --cflags --libs durite) && LD_LIBRARY_PATH=$lib ./tiny-shared
}
check pkg_config_finds_the_shared_library shared
hello() { # as README shows it, and again: the second run prints the recorded answer and runs nothing
    awk '/^```c$/ { block = ""; inside = 1; next }
         /^```$/ { if (inside && block ~ /int main/) { printf "%s", block; exit } inside = 0 }
         inside { block = block $0 "\n" }' "$here/../../README.md" >hello.c
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 hello.c -o hello $(pkg-config --cflags --libs durite) &&
        [ "$(LD_LIBRARY_PATH=$lib ./hello)" = "greeting
Hello, world!" ] && [ "$(LD_LIBRARY_PATH=$lib ./hello)" = "Hello, world!" ] &&
        sed '1,/^ \*\//d' "$here/../../examples/hello.c" | cmp - hello.c
}
check readme_says_hello_twice hello
postgres() { # found beside libdurite, whatever the way in which that was found
    [ -e "$lib/libdurite-postgres.so.0" ] || return 0
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 "$here/tiny_postgres.c" -o tiny-postgres $(pkg-config --cflags --libs durite) -Wl,-rpath,"$lib" &&
        env -u LD_LIBRARY_PATH ./tiny-postgres
}
check fault_h36_postgres_is_found_through_an_rpath postgres
static() {
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 "$here/tiny.c" -o tiny-static $(pkg-config --cflags durite) "$lib/libdurite.a" \
        $(pkg-config --libs --static durite | sed 's/-ldurite//') && ./tiny-static
}
check pkg_config_finds_what_the_static_library_needs static
cpp() { # twice: the second time it prints what is recorded
    # shellcheck disable=SC2046 # words
    "$cxx" -std=c++17 "$here/../../examples/cpp/hello.cpp" -o tiny-cpp $(pkg-config --cflags --libs durite) &&
        for _ in 1 2; do
            LD_LIBRARY_PATH=$lib ./tiny-cpp sqlite:cpp.db | grep -qx 'Hello, world!' || return 1
        done
}
check a_program_in_cpp_runs_twice cpp
kit() {
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 "$here/tiny_kit.c" -o tiny-kit $(pkg-config --cflags --libs durite-kit) &&
        LD_LIBRARY_PATH=$lib ./tiny-kit && "$prefix/bin/durite-kit" --list | grep -q .
}
check a_provider_author_can_link_the_kit kit
testing() {
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 "$here/tiny_testing.c" -o tiny-testing $(pkg-config --cflags --libs durite-testing) &&
        LD_LIBRARY_PATH=$lib ./tiny-testing &&
        "$cc" -std=c11 "$here/tiny_testing.c" -o tiny-testing-static $(pkg-config --cflags durite) \
            "$lib/libdurite-testing.a" "$lib/libdurite.a" $(pkg-config --libs --static durite | sed 's/-ldurite//') &&
        ./tiny-testing-static
}
check a_user_can_link_the_testing_library_both_ways testing
store() { # built by its author against what is installed, and loaded by the programs that are installed
    # shellcheck disable=SC2046 # words
    "$cc" -shared -fPIC "$here/../../examples/providers/minimal.c" -o minimal.so $(pkg-config --cflags --libs durite) &&
        "$prefix/bin/durite-kit" --load ./minimal.so minimal: --only locking &&
        "$prefix/bin/durite-stress" --load ./minimal.so minimal: --duration 1 &&
        "$cc" -std=c11 "$here/tiny_stress.c" -o tiny-stress $(pkg-config --cflags --libs durite-stress) &&
        LD_LIBRARY_PATH=$lib ./tiny-stress &&
        ! "$prefix/bin/durite-kit" --load ./nothing.so minimal: && ! "$prefix/bin/durite-kit" --load "$lib/libdurite.so" memory:
}
check programs_take_a_store_that_is_a_shared_object store
lint_order() {
    command -v clang-query >/dev/null || command -v clang-query-14 >/dev/null || { "$prefix/bin/durite-lint-order" x.c; [ $? -eq 2 ]; return; }
    "$prefix/bin/durite-lint-order" "$here/../lint/good_order.c" && ! "$prefix/bin/durite-lint-order" "$here/../lint/bad_order.c"
}
check the_lint_of_handlers_is_installed lint_order
suppressions() { # without them ThreadSanitizer takes what an uninstrumented library reads for a race
    # shellcheck disable=SC2046 # words
    "$cc" -std=c11 -g -fsanitize=thread "$here/../../examples/chat.c" -o chat-tsan $(pkg-config --cflags --libs durite) || return 0
    TSAN_OPTIONS=suppressions=$prefix/share/durite/tsan.supp LD_LIBRARY_PATH=$lib ./chat-tsan memory:
}
check a_program_under_thread_sanitizer_is_quiet suppressions
manual() { # every option that a program has is in its page
    for program in durite-kit durite-stress; do
        "$prefix/bin/$program" --help | grep -oE '(^|[ (])--[a-z-]+' | tr -d ' (' | sort -u | while read -r option; do
            sed 's/\\-/-/g' "$prefix/share/man/man1/$program.1" | grep -qF -- "$option" || echo "$program: $option is not in its page"
        done
    done | tee missing
    [ ! -s missing ]
}
check pages_of_the_manual_have_every_option manual
for kind in durite durite_static; do
    package() {
        cmake -S "$here" -B "cmake-$kind" -DCMAKE_PREFIX_PATH="$prefix" -DTINY_LIBRARY="durite::$kind" &&
            cmake --build "cmake-$kind" && "cmake-$kind/tiny" &&
            "cmake-$kind/tiny_cpp"
    }
    check "find_package_gives_$kind" package
done
exit $failed
