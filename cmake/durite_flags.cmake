# Warnings and build variants, in one place.
option(DURITE_TESTS "build the tests" ON)
option(DURITE_EXAMPLES "build the examples and the benchmark" ON)
option(DURITE_DEBUG "costly checks; every arena object is a malloc of its own" OFF)
option(DURITE_WERROR "warnings are errors" OFF)
option(DURITE_LIBFUZZER "build tests/fuzz for libFuzzer (clang) instead of as ordinary tests" OFF)
option(DURITE_CXX "with the tests that are written in C++" ON)
option(DURITE_PLAIN "as on systems that are not Linux, where src/base has a choice" OFF)
option(DURITE_CORO_UCONTEXT "switch stacks with ucontext, also where there is assembler" OFF)
set(DURITE_OPTIMIZE "-O2" CACHE STRING "how the release is optimised")
set(DURITE_SANITIZE "" CACHE STRING "address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_FLAGS_RELEASE "${DURITE_OPTIMIZE} -g")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
if(DURITE_SANITIZE)
    set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
endif()

add_library(durite_flags INTERFACE)
target_compile_options(durite_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -fvisibility=hidden
    $<$<COMPILE_LANGUAGE:C>:-Wconversion -Wstrict-prototypes -Wvla>
    # clang counts the idiom DUR_ASSERT(!"why") among conversions
    $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-string-conversion>
    $<$<BOOL:${DURITE_WERROR}>:-Werror>)
target_compile_definitions(durite_flags INTERFACE _GNU_SOURCE
    $<$<BOOL:${DURITE_DEBUG}>:DURITE_DEBUG=1 DURITE_DEBUG_ARENA=1>
    $<$<BOOL:${DURITE_PLAIN}>:DURITE_PLAIN=1>
    $<$<BOOL:${DURITE_CORO_UCONTEXT}>:DURITE_CORO_UCONTEXT=1>)
# 32 bits: files beyond 2 GiB and times beyond 2038.  Nothing of either is in the public headers.
if(CMAKE_SIZEOF_VOID_P EQUAL 4)
    target_compile_definitions(durite_flags INTERFACE _FILE_OFFSET_BITS=64 _TIME_BITS=64)
endif()
if(DURITE_SANITIZE)
    # What is undefined ends the program; a line in a log would be overlooked.
    set(durite_sanitize -fsanitize=${DURITE_SANITIZE} -fno-omit-frame-pointer)
    if(DURITE_SANITIZE MATCHES "undefined")
        list(APPEND durite_sanitize -fno-sanitize-recover=all)
    endif()
    target_compile_options(durite_flags INTERFACE ${durite_sanitize})
    target_link_options(durite_flags INTERFACE ${durite_sanitize})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(durite_flags INTERFACE -fstack-protector-strong)
    target_compile_definitions(durite_flags INTERFACE _FORTIFY_SOURCE=2)
endif()
if(DURITE_LIBFUZZER)
    target_compile_options(durite_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
