/* books.h - what shop.c and cancel.c have in common: the file with the orders and the stock. */
#ifndef BOOKS_H
#define BOOKS_H

#include "../example_sqlite.h"

#define TOPIC "Cancellations"

#define TABLES                                                                                     \
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT, recall TEXT);"           \
    "CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER);"                   \
    "INSERT INTO stock VALUES (1, 100) ON CONFLICT DO NOTHING"

#endif
