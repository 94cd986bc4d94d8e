/** Made of docs/logs.md when the page is built (scripts/build-page.ts). */
declare module 'tagferry:log-meanings' {
  /** By the event's name. */
  export const LOG_MEANINGS: Readonly<Record<string, { meaning: string; action: string }>>;
}
