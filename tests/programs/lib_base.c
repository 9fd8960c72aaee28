/* The function that another library stands in front of. */
int layered(int depth) { return 1000 + depth; }
