/** Text that stood somewhere, read as something: the value, or why not. `reason` follows the name and the text. */
export type Reading<T> = { value: T } | { reason: string; instead: string };
