# What `make install` puts where: both libraries, the headers, durite.pc, the CMake package, man pages.
include(CMakePackageConfigHelpers)

# Programs find the library beside them, wherever the tree is; distributions build with CMAKE_SKIP_INSTALL_RPATH.
file(RELATIVE_PATH bin_to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
set_target_properties(durite-kit durite-stress PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

install(TARGETS durite durite_static EXPORT durite_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/durite DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
    PATTERN "*.hpp")

# The tree may be moved, and `cmake --install --prefix` chooses its place late: the paths are relative to the file.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/durite.pc.in durite.pc @ONLY)
configure_file(cmake/durite-kit.pc.in durite-kit.pc @ONLY)
configure_file(cmake/durite-stress.pc.in durite-stress.pc @ONLY)
install(TARGETS durite_kit durite-kit durite_stress durite-stress
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_BINARY_DIR}/durite.pc ${CMAKE_BINARY_DIR}/durite-kit.pc
    ${CMAKE_BINARY_DIR}/durite-stress.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# For tests of users.
configure_file(cmake/durite-testing.pc.in durite-testing.pc @ONLY)
install(TARGETS durite_testing durite_testing_static EXPORT durite_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/durite-testing.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A package of its own: programs that use no PostgreSQL need no libpq.
if(TARGET durite_postgres)
    configure_file(cmake/durite-postgres.pc.in durite-postgres.pc @ONLY)
    install(TARGETS durite_postgres durite_postgres_static EXPORT durite_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES ${CMAKE_BINARY_DIR}/durite-postgres.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

install(EXPORT durite_targets NAMESPACE durite:: FILE duriteTargets.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/durite)
configure_package_config_file(cmake/duriteConfig.cmake.in duriteConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/durite)
write_basic_package_version_file(duriteConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/duriteConfig.cmake ${CMAKE_BINARY_DIR}/duriteConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/durite)

# For users' handlers: the lint of their statements, and what a sanitizer must be told.
install(PROGRAMS tools/lint-order DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME durite-lint-order)
install(FILES tools/lint-order.query DESTINATION ${CMAKE_INSTALL_DATADIR}/durite)
install(FILES tools/users-tsan.supp DESTINATION ${CMAKE_INSTALL_DATADIR}/durite RENAME tsan.supp)

file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.[1-9])
foreach(page ${man_pages})
    string(REGEX REPLACE ".*\\." "" section ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
