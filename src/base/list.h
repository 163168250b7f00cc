/*
 * list.h: intrusive doubly linked list.  A zeroed head must be initialised with dur__list_init.
 */
#ifndef DURITE_BASE_LIST_H
#define DURITE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dur__link {
    struct dur__link *next, *prev;
} dur__link;

static inline void dur__list_init(dur__link *head) {
    head->next = head->prev = head;
}
static inline bool dur__list_empty(const dur__link *head) {
    return head->next == head;
}
static inline bool dur__link_linked(const dur__link *link) {
    return link->next != NULL && link->next != link;
}
static inline void dur__list_push(dur__link *head, dur__link *link) { /* at the end */
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}
static inline void dur__list_push_front(dur__link *head, dur__link *link) {
    dur__list_push(head->next, link);
}
static inline void dur__list_unlink(dur__link *link) { /* harmless when not linked */
    if (link->next == NULL) return;
    link->next->prev = link->prev;
    link->prev->next = link->next;
    link->next = link->prev = NULL;
}
static inline dur__link *dur__list_first(dur__link *head) {
    return head->next == head ? NULL : head->next;
}
static inline dur__link *dur__list_pop(dur__link *head) {
    dur__link *link = dur__list_first(head);
    if (link != NULL) dur__list_unlink(link);
    return link;
}
#define DUR__CONTAINER(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))
#define DUR__LIST_EACH(head, at) for (dur__link *at = (head)->next; at != (head); at = at->next)
#define DUR__LIST_EACH_SAFE(head, at, after)                                                                           \
    for (dur__link *at = (head)->next, *after = at->next; at != (head); at = after, after = at->next)

#endif
