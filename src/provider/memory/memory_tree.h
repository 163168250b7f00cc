/*
 * memory_tree.h: an intrusive ordered set, keyed by two 64-bit numbers.
 *
 * Owns nothing: nodes live in the rows.  A treap whose priorities are a hash of the key, so that its shape is a
 * function of its contents and every operation is O(log n).  A zeroed tree is empty, a zeroed node is in no tree.
 */
#ifndef DURITE_PROVIDER_MEMORY_TREE_H
#define DURITE_PROVIDER_MEMORY_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dur__mem_tree dur__mem_tree;

typedef struct dur__mem_node {
    struct dur__mem_node *child[2], *parent;
    dur__mem_tree *tree; /* NULL: in no tree */
    uint64_t hi, lo;     /* the key; lo makes it unique */
    uint64_t rank;
} dur__mem_node;

struct dur__mem_tree {
    dur__mem_node *root;
    size_t count;
};

void dur__mem_tree_add(dur__mem_tree *tree, dur__mem_node *node, uint64_t hi, uint64_t lo);
void dur__mem_tree_remove(dur__mem_node *node); /* harmless when in no tree */
dur__mem_node *dur__mem_tree_first(const dur__mem_tree *tree);
dur__mem_node *dur__mem_tree_next(const dur__mem_node *node);
/* The first node whose key is not below (hi, lo). */
dur__mem_node *dur__mem_tree_from(const dur__mem_tree *tree, uint64_t hi, uint64_t lo);

static inline bool dur__mem_before(uint64_t a_hi, uint64_t a_lo, uint64_t b_hi, uint64_t b_lo) {
    return a_hi != b_hi ? a_hi < b_hi : a_lo < b_lo;
}

#endif
