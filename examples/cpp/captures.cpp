/*
 * captures.cpp: activities are lambdas that may capture what they work with: a pool, a cache, here a bank.
 * Orchestrations may not, which the compiler says: they are run again in other processes.  Their branches may, because
 * a branch never outlives the object that stands for it.
 */
#include "host.hpp"

#include <map>
#include <mutex>

class bank {
  public:
    /* Under the same key twice: charged once. */
    int charge(const std::string &key, int cents) {
        std::lock_guard<std::mutex> lock(mutex);
        if (charged.emplace(key, cents).second) total += cents;
        return total;
    }

  private:
    std::mutex mutex;
    std::map<std::string, int> charged;
    int total = 0;
};

int main(int argc, char **argv) {
    bank visa;
    durite::handlers handlers;
    handlers.activity("Charge", [&visa](durite::act &act, std::string_view cents) {
        return visa.charge(std::string(act.key()), std::stoi(std::string(cents)));
    });
    handlers.activity("Bill", [currency = std::string("EUR")](int cents) {
        return std::to_string(cents) + " cents, in " + currency;
    });
    handlers.orchestration("Pay", [](durite::context &ctx, std::string_view) {
        int first = 0;
        durite::branch tip = ctx.spawn([&first](durite::context &branch) {
            first = branch.activity("Charge", "100").get<int>();
            branch.sleep(1ms);
        });
        tip.get();
        int total = ctx.activity("Charge", "250").get<int>();
        return ctx.activity("Bill", std::to_string(first + total)).get<std::string>();
    });
    example e(argc, argv, handlers);
    e.start("Pay", "", "pay-1");
    e.expect("pay-1", "450 cents, in EUR");
    return e.end();
}
