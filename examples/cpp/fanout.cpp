/*
 * fanout.cpp: many activities at once.  Schedule all, then await in order; who finishes first does not matter.  The
 * vector lives on the heap: its destructor runs also when the handler is dropped where it waits.
 */
#include "host.hpp"

#include <vector>

static std::string count_book(durite::context &ctx, std::string_view book) {
    std::vector<durite::future> pages;
    for (std::size_t at = 0; at <= book.size(); at = book.find('|', at) + 1) {
        pages.push_back(ctx.activity("CountWords", book.substr(at, book.find('|', at) - at)));
        if (book.find('|', at) == book.npos) break;
    }
    int total = 0;
    for (const durite::future &page : pages)
        total += page.get<int>();
    return std::to_string(total) + " words on " + std::to_string(pages.size()) + " pages";
}

static int count_words(std::string_view page) {
    int words = 0;
    for (std::size_t i = 0; i < page.size(); i++)
        words += page[i] != ' ' && (i + 1 == page.size() || page[i + 1] == ' ');
    return words;
}

int main(int argc, char **argv) {
    example e(argc, argv,
              durite::handlers().activity("CountWords", count_words).orchestration("CountBook", count_book));
    e.start("CountBook", "call me|some years ago|never mind how long", "moby-dick");
    e.expect("moby-dick", "9 words on 3 pages");
    return e.end();
}
