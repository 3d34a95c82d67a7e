/* Intrusive lists: order, removal from anywhere, moving a whole list. */
#include "base/list.h"
#include "base/test.h"

struct item {
    int number;
    struct link by_order; /* not first, so that list_entry has something to do */
};

static void check_list(const struct list *l, const char *wanted)
{
    list_each(k, l) {
        assert_int_equal(list_entry(k, struct item, by_order)->number, *wanted);
        wanted++;
    }
    assert_int_equal(*wanted, '\0');
    for (const struct link *k = l->head.next; k != &l->head; k = k->next)
        assert_ptr_equal(k->next->prev, k);
}

static void keeps_order_and_lets_go(void **state)
{
    (void)state;
    struct item items[] = {{.number = 'a'}, {.number = 'b'}, {.number = 'c'}, {.number = 'd'}};
    struct list l;
    list_init(&l);
    assert_true(list_empty(&l));
    assert_null(list_first(&l));
    assert_null(list_pop(&l));
    for (int i = 0; i < 4; i++) {
        assert_false(link_in_list(&items[i].by_order));
        list_add_tail(&l, &items[i].by_order);
        assert_true(link_in_list(&items[i].by_order));
    }
    check_list(&l, "abcd");
    list_remove(&items[1].by_order);
    list_remove(&items[1].by_order);
    assert_false(link_in_list(&items[1].by_order));
    check_list(&l, "acd");
    assert_ptr_equal(list_pop(&l), &items[0].by_order);
    list_add_tail(&l, &items[0].by_order);
    check_list(&l, "cda");
    list_replace(&items[3].by_order, &items[1].by_order);
    assert_false(link_in_list(&items[3].by_order));
    check_list(&l, "cba");
    list_each(k, &l)
        list_remove(k);
    check_list(&l, "");
    assert_true(list_empty(&l));
}

static void moves_whole_lists(void **state)
{
    (void)state;
    struct item items[] = {{.number = 'a'}, {.number = 'b'}, {.number = 'c'}};
    struct list to, from;
    list_init(&to);
    list_init(&from);
    list_append_all(&to, &from);
    assert_true(list_empty(&to));
    list_add_tail(&from, &items[0].by_order);
    list_add_tail(&from, &items[1].by_order);
    list_append_all(&to, &from);
    check_list(&to, "ab");
    assert_true(list_empty(&from));
    list_add_tail(&from, &items[2].by_order);
    list_append_all(&to, &from);
    check_list(&to, "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_order_and_lets_go),
        cmocka_unit_test(moves_whole_lists),
    };
    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
