/** Result of parsing text: the value, or a problem. Messages append `reason` to the setting name and the text. */
export type Reading<T> = { value: T } | { reason: string; instead: string };
