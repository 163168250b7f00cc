/*
 * host.hpp: store, runtime and client in one object, for a program that is nothing else.  Include durite/durite.hpp.
 */
#ifndef DURITE_HOST_HPP
#define DURITE_HOST_HPP

#include <durite/host.h>
#include <durite/registry.hpp>

namespace durite {

/* durite::host("sqlite:orders.db", handlers).run() is a whole service.  A program with more to do uses durite::store,
   durite::runtime and durite::client.  Thread class as of dur_host. */
class host {
  public:
    host(std::string_view url, const handlers &what) : handlers_(std::make_unique<handlers>(what)) {
        std::string own = detail::text(url, "host: the URL");
        dur_error err = DUR_ERROR_INIT;
        if (dur_host_start(&host_, own.c_str(), handlers_->c(), &err) != DUR_OK) throw error(err);
    }
    host(const host &) = delete;
    host &operator=(const host &) = delete;
    ~host() {
        (void)keep(dur_host_stop(host_, 10000, nullptr));
        dur_host_free(host_);
    }

    client_ref client() const { return client_ref(dur_host_client(host_)); }
    /* Until SIGINT or SIGTERM: dur_host_run. */
    void run() {
        dur_error err = DUR_ERROR_INIT;
        if (keep(dur_host_run(host_, &err)) != DUR_OK) throw error(err);
    }
    dur_host *c() const noexcept { return host_; }

  private:
    /* A thread that was left behind may be in one of the handlers. */
    int keep(int code) noexcept {
        if (code == DUR_EBUSY) (void)handlers_.release();
        return code;
    }
    dur_host *host_ = nullptr;
    std::unique_ptr<handlers> handlers_;
};

} // namespace durite

#endif
