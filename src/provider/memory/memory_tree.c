/*
 * memory_tree.c: the ordered set of memory_tree.h.
 */
#include "provider/memory/memory_tree.h"

#include "base/assert.h"

static uint64_t mix(uint64_t x) { /* the finaliser of splitmix64 */
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool node_before(const dur__mem_node *a, const dur__mem_node *b) {
    return dur__mem_before(a->hi, a->lo, b->hi, b->lo);
}

/* Put `replacement` (NULL allowed) where node hangs. */
static void hang(dur__mem_tree *tree, dur__mem_node *node, dur__mem_node *replacement) {
    dur__mem_node *parent = node->parent;
    if (parent == NULL)
        tree->root = replacement;
    else
        parent->child[parent->child[1] == node] = replacement;
    if (replacement != NULL) replacement->parent = parent;
}

/* Lift node above its parent. */
static void rotate_up(dur__mem_tree *tree, dur__mem_node *node) {
    dur__mem_node *parent = node->parent;
    int side = parent->child[1] == node;
    dur__mem_node *inner = node->child[!side];
    hang(tree, parent, node);
    node->child[!side] = parent;
    parent->parent = node;
    parent->child[side] = inner;
    if (inner != NULL) inner->parent = parent;
}

void dur__mem_tree_add(dur__mem_tree *tree, dur__mem_node *node, uint64_t hi, uint64_t lo) {
    DUR_ASSERT(node->tree == NULL);
    *node = (dur__mem_node){ .tree = tree, .hi = hi, .lo = lo, .rank = mix(hi ^ mix(lo)) };
    dur__mem_node **at = &tree->root;
    while (*at != NULL) {
        node->parent = *at;
        at = &(*at)->child[!node_before(node, *at)];
    }
    *at = node;
    tree->count++;
    while (node->parent != NULL && node->parent->rank < node->rank)
        rotate_up(tree, node);
}

void dur__mem_tree_remove(dur__mem_node *node) {
    dur__mem_tree *tree = node->tree;
    if (tree == NULL) return;
    while (node->child[0] != NULL && node->child[1] != NULL)
        rotate_up(tree, node->child[node->child[1]->rank > node->child[0]->rank]);
    hang(tree, node, node->child[0] != NULL ? node->child[0] : node->child[1]);
    tree->count--;
    *node = (dur__mem_node){ .tree = NULL };
}

dur__mem_node *dur__mem_tree_first(const dur__mem_tree *tree) {
    dur__mem_node *node = tree->root;
    while (node != NULL && node->child[0] != NULL)
        node = node->child[0];
    return node;
}

dur__mem_node *dur__mem_tree_next(const dur__mem_node *node) {
    if (node->child[1] != NULL) {
        dur__mem_node *next = node->child[1];
        while (next->child[0] != NULL)
            next = next->child[0];
        return next;
    }
    while (node->parent != NULL && node->parent->child[1] == node)
        node = node->parent;
    return node->parent;
}

dur__mem_node *dur__mem_tree_from(const dur__mem_tree *tree, uint64_t hi, uint64_t lo) {
    dur__mem_node *best = NULL;
    dur__mem_node *node = tree->root;
    while (node != NULL) {
        bool below = dur__mem_before(node->hi, node->lo, hi, lo);
        if (!below) best = node;
        node = node->child[below];
    }
    return best;
}
