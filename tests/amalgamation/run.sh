#!/bin/sh
# run.sh: make durite.c and durite.h, compile them in each way that is promised, and run hello.
# usage: run.sh SOURCE      TAP on standard output; the current folder is used for everything.
set -u
source=$1
number=0 failed=0
check() { # NAME COMMAND...
    name=$1
    shift
    number=$((number + 1))
    "$@" >"step-$number.log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "ok $number - $name"
    elif [ $status -eq 77 ]; then
        echo "ok $number - $name # SKIP $(tail -n 1 "step-$number.log")"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "step-$number.log"
        failed=1
    fi
}
have() { command -v "$1" >/dev/null || { echo "no $1"; exit 77; }; }
echo 1..9

twice() { "$source/tools/amalgamation" one && "$source/tools/amalgamation" two && diff -r one two; }
check two_runs_write_the_same_bytes twice

hello() {
    ${CC:-cc} -std=c11 -Werror -Wall -Ione -c one/durite.c -o durite.o &&
        ${CC:-cc} -std=c11 -Ione "$source/examples/hello.c" durite.o -lsqlite3 -pthread -ldl -lm -o hello &&
        [ "$(./hello)" = "greeting
Hello, world!" ] && [ "$(./hello)" = "Hello, world!" ]
}
check hello_runs_from_one_file_twice hello

names() { # those of libdurite.so, and the ones of its own that files share
    nm -g --defined-only durite.o | awk '$2 != "U" && $3 !~ /^dur__/ { print $3 }' | sort >found
    sed '/^#/d; /^$/d; s/ .*//' "$source/tools/exported-symbols.txt" | sort | diff - found
}
check it_exports_what_the_library_exports names

cpp() {
    have "${CXX:-c++}"
    ${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Werror -Ione "$source/examples/cpp/hello.cpp" durite.o -lsqlite3 \
        -pthread -ldl -lm -o hello-cpp && ./hello-cpp memory: | grep -qx 'Hello, world!'
}
check the_header_of_cpp_goes_with_it cpp

postgres() { # shellcheck disable=SC2046 # words
    pkg-config --exists libpq || { echo "no libpq"; exit 77; }
    ${CC:-cc} -std=c11 -Werror -Wall -DDURITE_POSTGRES $(pkg-config --cflags libpq) -Ione -c one/durite.c -o with-pg.o &&
        ${CC:-cc} -std=c11 -Ione "$source/examples/hello.c" with-pg.o $(pkg-config --libs libpq) -lsqlite3 -pthread -ldl -lm \
            -o hello-pg &&
        ! ./hello-pg 'postgres://nobody@127.0.0.1:1/none?connect_timeout=1' >said && cat said && grep -qi 'refused' said
}
check with_postgresql_it_needs_no_library_of_ours postgres

clang_too() {
    have clang
    clang -std=c11 -Wall -Wextra -Werror -fsyntax-only -Ione one/durite.c
}
check clang_compiles_it clang_too

musl() { # its own headers, and of the system's only that of SQLite
    have musl-gcc
    mkdir -p sqlite && cp "$(pkg-config --variable=includedir sqlite3)/sqlite3.h" sqlite &&
        musl-gcc -std=c11 -Wall -Wextra -Werror -fsyntax-only -Ione -Isqlite one/durite.c
}
check musl_gcc_compiles_it musl
dist() { # the same bytes twice, and everything that git knows
    "$source/tools/dist" dist-one && sleep 1 && "$source/tools/dist" dist-two && diff -r dist-one dist-two || return 1
    archive=$(echo dist-one/durite-[0-9]*.tar.gz)
    tar -tzf "$archive" | sed 's|^[^/]*/||' | sort >packed
    [ ! -e "$source/.git" ] || git -C "$source" ls-files | LC_ALL=C sort | LC_ALL=C comm -3 - packed | sed 's/^/differs: /' >differs
    [ ! -s differs ] || { cat differs; return 1; }
    grep -qx Makefile packed && grep -qx debian/control packed
}
check the_source_archive_is_the_same_twice dist

meson_too() {
    have meson
    mkdir -p project/subprojects/packagefiles
    cp dist-one/durite.wrap project/subprojects/ && cp dist-one/durite-amalgamation-*.tar.gz project/subprojects/packagefiles/ &&
        cp "$source/examples/hello.c" project/ || return 1
    cat >project/meson.build <<'END'
project('hello', 'c', default_options: ['buildtype=debug'])
executable('hello', 'hello.c', dependencies: dependency('durite'))
END
    meson setup project/build project && ninja -C project/build && project/build/hello memory: | grep -qx 'Hello, world!'
}
check the_wrap_makes_a_subproject_of_meson meson_too
exit $failed
