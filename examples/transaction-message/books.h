/* books.h - the files of the two programs. The shop's has the orders, the stock, and for each
 * message what was decided about it. */
#ifndef BOOKS_H
#define BOOKS_H

#include "../example_sqlite.h"

#define TOPIC "Sales"

#define SHOP_TABLES                                                                                \
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY);"                                     \
    "CREATE TABLE IF NOT EXISTS decisions (message TEXT PRIMARY KEY, decision TEXT);"              \
    "CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER CHECK (pieces >= "   \
    "0));"                                                                                         \
    "INSERT INTO stock VALUES (1, 10) ON CONFLICT DO NOTHING"

#define SHIP_TABLES "CREATE TABLE IF NOT EXISTS shipments (order_id TEXT)"

#endif
