/*
 * error.hpp: errors and results in C++, and what the other headers share.  Include durite/durite.hpp.
 */
#ifndef DURITE_ERROR_HPP
#define DURITE_ERROR_HPP

#include <durite/error.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace durite {

using milliseconds = std::chrono::milliseconds;

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Why a call failed, or what was waited for.  what() is the message alone: as the reason of a failure it is the same
   through all layers. */
class DUR_API error : public std::runtime_error {
  public:
    error(int code, const std::string &message, bool retryable = false)
        : std::runtime_error(message), code_(static_cast<dur_code>(code)), retryable_(retryable) {}
    explicit error(const dur_error &err) : error(err.code, err.message, err.retryable) {}

    dur_code code() const noexcept { return code_; }
    bool retryable() const noexcept { return retryable_; } /* the same call may succeed later */

  private:
    dur_code code_;
    bool retryable_;
};

/* Thrown by an activity: no retry will help. */
class DUR_API final_failure : public error {
  public:
    explicit final_failure(const std::string &reason) : error(DUR_EFAILED, reason) {}
};

/* Thrown by a wait of a handler that is dropped.  Not a std::exception: it is nobody's to handle. */
class DUR_API dropped final {};

/* A value, or why there is none. */
template <class T> class expected {
  public:
    expected(T value) : value_(std::move(value)) {}
    expected(int code, std::string message, bool retryable = false)
        : code_(static_cast<dur_code>(code)), retryable_(retryable), message_(std::move(message)) {}
    explicit expected(const dur_error &err) : expected(err.code, err.message, err.retryable) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    dur_code code() const noexcept { return code_; }
    bool retryable() const noexcept { return retryable_; }
    const std::string &message() const noexcept { return message_; }
    /* throws durite::error where there is none */
    const T &value() const & {
        if (!value_) throw error(code_, message_, retryable_);
        return *value_;
    }
    T &&value() && {
        if (!value_) throw error(code_, message_, retryable_);
        return std::move(*value_);
    }
    const T &operator*() const & { return value(); }
    const T *operator->() const { return &value(); }
    T value_or(T other) const { return value_ ? *value_ : std::move(other); }

  private:
    std::optional<T> value_;
    dur_code code_ = DUR_OK;
    bool retryable_ = false;
    std::string message_;
};

/* The result of what has no value. */
struct done {};

namespace detail {

/* ---- texts ---- */

inline std::string_view view(const char *text) noexcept {
    return text != nullptr ? std::string_view(text) : std::string_view();
}
inline std::optional<std::string_view> optional_view(const char *text) {
    return text != nullptr ? std::optional<std::string_view>(text) : std::nullopt;
}
/* For C, which would read up to the first NUL byte and lose the rest. */
inline void need_no_nul(std::string_view given, const char *what) {
    std::size_t at = given.find('\0');
    if (at != given.npos)
        throw error(DUR_EINVAL, std::string(what) + " has a NUL byte at " + std::to_string(at) +
                                    "; texts are UTF-8 without NUL bytes");
}
inline std::string text(std::string_view given, const char *what) {
    need_no_nul(given, what);
    return std::string(given);
}
inline const char *c(const std::string &own, const char *what) {
    need_no_nul(own, what);
    return own.c_str();
}

template <class T> constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) > 1;

template <class T> T number(std::string_view given) {
    T value{};
    std::from_chars_result read = std::from_chars(given.data(), given.data() + given.size(), value);
    if (read.ec != std::errc() || read.ptr != given.data() + given.size() || given.empty())
        throw error(DUR_EINVAL, "\"" + std::string(given.substr(0, 40)) + "\" is not a number that fits");
    return value;
}

template <class T> T convert(std::string_view given) {
    static_assert(is_number<T> || std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>,
                  "durite: a payload is a text: take it as std::string_view, std::string or a whole number");
    if constexpr (is_number<T>)
        return number<T>(given);
    else
        return T(given);
}

/* What a function is called with: becomes what its parameter is. */
struct input {
    std::string_view text;
    operator std::string_view() const { return text; }
    operator std::string() const { return std::string(text); }
    template <class T, class = std::enable_if_t<is_number<T>>> operator T() const { return number<T>(text); }
};

/* A reason must be UTF-8, and what() may be anything. */
inline bool is_utf8(std::string_view given) {
    for (std::size_t i = 0; i < given.size();) {
        unsigned char c = static_cast<unsigned char>(given[i++]);
        int more = c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
        if (more < 0 || static_cast<std::size_t>(more) > given.size() - i) return false;
        unsigned char next = more > 0 ? static_cast<unsigned char>(given[i]) : 0;
        if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90) ||
            (c == 0xf4 && next > 0x8f))
            return false;
        for (; more > 0; more--)
            if ((static_cast<unsigned char>(given[i++]) & 0xc0) != 0x80) return false;
    }
    return true;
}
inline std::string reason(const char *what) {
    std::string told(view(what));
    if (!is_utf8(told))
        for (char &c : told)
            if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    return told;
}

/* ---- calls that a handler may be dropped in ---- */

/* In a destructor that runs because of an exception another one must not come out: the call answers `otherwise`. */
template <class R, class F> R call(R otherwise, F &&f) {
    try {
        return f();
    } catch (const dropped &) {
        if (std::uncaught_exceptions() == 0) throw;
        return otherwise;
    }
}
/* For what destructors do: the next wait will throw. */
template <class F> void quietly(F &&f) noexcept {
    try {
        f();
    } catch (const dropped &) {
    }
}

[[noreturn]] inline void unwind() {
    throw dropped();
}

[[noreturn]] inline void nobody(const char *what) {
    throw error(DUR_EINVAL, std::string(what) + ": not inside the orchestration that it belongs to");
}

inline std::uint64_t ms(milliseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

template <class T> T sized() {
    T made = {};
    made.size = sizeof(made);
    return made;
}

} // namespace detail

} // namespace durite

#endif
