/*
 * kit_urls.h: a factory of stores for everything that dur_open can open.
 */
#ifndef DURITE_KIT_URLS_H
#define DURITE_KIT_URLS_H

#include <durite/sys/kit.h>

/*
 * memory:        a new one each time
 * sqlite:PATH    files PATH-1, PATH-2, … beside each other, removed afterwards; no PATH: in the folder for temporary
 *                files.  A file PATH itself is never touched
 * postgres://…   schemas NAME_PID_1, NAME_PID_2, … of that database, dropped afterwards; NAME is that of schema=
 * others         {n} in the URL becomes a number that was not used before; for postgres, too
 * our_time: two stores are to be compared, so a server is told the caller's time.
 * A memory: URL without parameters is opened in the poll mode that is asked for.
 * Stores that follow the caller's clock get a fake one, so that nothing sleeps.
 * *factory is freed with kit_urls_free.  Opens and closes one store to see that it works.
 */
int kit_urls_new(dur_kit_factory *factory, const char *url, dur_kit_poll poll, bool our_time, dur_error *err);
void kit_urls_free(dur_kit_factory *factory);

#endif
