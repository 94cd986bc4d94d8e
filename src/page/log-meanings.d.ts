/** Generated from docs/reference/logs.md when the page is built (scripts/build-page.ts). */
declare module 'tagferry:log-meanings' {
  /** Meaning and recommended action by event name. */
  export const LOG_MEANINGS: Readonly<Record<string, { meaning: string; action: string }>>;
}
