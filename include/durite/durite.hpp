/*
 * durite.hpp: Durite for C++17 and later.  Header only, over the C interface, which stays usable beside it: every class
 * has c().  Guide: docs/guide/cpp.md.  Examples: examples/cpp.
 *
 *     std::string_view order(durite::context &ctx, std::string_view id) {
 *         std::string_view slot = ctx.await(durite::activity("Reserve", id));
 *         durite::future paid = ctx.message("Paid");
 *         durite::future late = ctx.timer(24h);
 *         if (durite::select(paid, late) == late) throw std::runtime_error("never paid");
 *         return ctx.await(durite::activity("Ship", slot).tag("eu").retry(durite::retry().attempts(5)));
 *     }
 *
 * What orchestration.h says of handlers holds here, with one difference: objects with destructors may live across a
 * wait.  A handler that is dropped where it waits (evicted, terminated, deleted, its lease lost, its runtime stopped,
 * its branch given up) is unwound: the wait throws durite::dropped, and destructors run, on the thread that ran the
 * handler.  From then on a wait throws it again, other calls do nothing and answer empty; what the handler returns is
 * not looked at.  A wait in a destructor while an exception is in flight never throws it; it answers empty.  Catch
 * errors, not everything; a catch (...) around a wait ends with throw.  Never wait in a destructor: destructors are
 * noexcept, and waits throw.
 *
 * An exception that leaves a handler, a branch or an activity is its failure, with what().
 * Texts are UTF-8 without NUL bytes.  A std::string_view that a handler gets lives as long as its execution, or its
 * durite::scope.  Functions that can fail throw durite::error; those that begin with try_ return a durite::expected.
 * Thread classes are those of the C types.
 */
#ifndef DURITE_HPP
#define DURITE_HPP

#include <durite/client.hpp>
#include <durite/durite.h>
#include <durite/error.hpp>
#include <durite/host.hpp>
#include <durite/orchestration.hpp>
#include <durite/registry.hpp>
#include <durite/runtime.hpp>

#endif
