/*
 * orders.h: the handlers of the order service.
 */
#ifndef ORDERS_H
#define ORDERS_H

#include <durite/durite.h>

extern const dur_handler order_handlers[];

/* Tables of the shop, in the store's file. */
#define ORDERS_SCHEMA                                                                                                  \
    "CREATE TABLE IF NOT EXISTS ledger(key TEXT PRIMARY KEY, order_id TEXT NOT NULL, kind TEXT NOT NULL);"             \
    "CREATE TABLE IF NOT EXISTS orders(order_id TEXT PRIMARY KEY, state TEXT NOT NULL);"

#endif
