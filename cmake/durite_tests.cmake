# How a program becomes a test.  File placement is registration; this file keeps the list.
#
# Every run is a line of BUILD/tests.manifest, read by tools/run-tests:
#   name TAB kind TAB timeout in seconds TAB threads (0 or 1) TAB url TAB command TAB arguments
# url is "-", "memory:", or "sqlite:" (the runner makes a file of its own for the run).  ctest gets the same list.

# durite_test_run(NAME n KIND k COMMAND program... [TIMEOUT s] [URLS u...] [THREADS] [STEPPED])
# With URLS it is run once for each: as the first argument and in DURITE_TEST_URL.  STEPPED: and once more for each, as
# NAME@scheme-step, with DURITE_TEST_THREADS=none.
function(durite_test_run)
    cmake_parse_arguments(run "THREADS;STEPPED" "NAME;KIND;TIMEOUT" "COMMAND;URLS" ${ARGN})
    if(NOT DURITE_TESTS)
        return()
    endif()
    if(NOT run_TIMEOUT)
        set(run_TIMEOUT 60)
    endif()
    if(NOT run_URLS)
        set(run_URLS "-")
    endif()
    set(threads 0)
    if(run_THREADS)
        set(threads 1)
    endif()
    list(POP_FRONT run_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    string(JOIN " " arguments ${run_COMMAND})
    set(variants "plain")
    if(run_STEPPED)
        list(APPEND variants "-step")
    endif()
    foreach(variant ${variants})
        foreach(url ${run_URLS})
            set(name ${run_NAME})
            if(NOT url STREQUAL "-")
                string(REGEX REPLACE ":.*" "" scheme ${url})
                set(name ${run_NAME}@${scheme})
            endif()
            if(NOT variant STREQUAL "plain")
                string(APPEND name ${variant})
            endif()
            set_property(GLOBAL APPEND PROPERTY durite_manifest
                "${name}\t${run_KIND}\t${run_TIMEOUT}\t${threads}\t${url}\t${program}\t${arguments}\n")
            # The runner judges ctest's runs too: one rule for what has passed.
            add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tools/run-tests --only ${name} ${CMAKE_BINARY_DIR})
            set_tests_properties(${name} PROPERTIES TIMEOUT 600)
        endforeach()
    endforeach()
endfunction()

function(durite_write_manifest)
    get_property(lines GLOBAL PROPERTY durite_manifest)
    string(JOIN "" text ${lines})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tests.manifest CONTENT "${text}")
endfunction()
