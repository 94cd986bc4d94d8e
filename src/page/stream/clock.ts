/** Milliseconds since the page was opened, in the browser's running time: its wall clock may say what it likes. */
export const pageMs = (): number => performance.now();
