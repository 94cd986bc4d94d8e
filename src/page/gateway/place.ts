/** Which of the page's views is looked at, as the address's fragment says: `#now`; it can be kept as a bookmark, and the browser goes back. */

export const VIEWS = ['now'] as const;
export type View = (typeof VIEWS)[number];

export interface Place {
  view: View;
  /** What of it: the number of a tag, of an event. */
  of: string | undefined;
}

export function placeOf(fragment: string): Place {
  const [view, of] = fragment.replace(/^#/, '').split('=');
  const known = VIEWS.find((each) => each === view);
  return { view: known ?? 'now', of: known && of };
}

const TOKEN = /^#token=([^&]+)(?:&(.*))?$/;

/**
 * OPS_TOKEN of `#token=…`, taken out of the address at once: neither history nor a picture of the screen has it. A fragment is sent to
 * nobody, which a query is.
 */
export function takeToken(): string | undefined {
  const match = TOKEN.exec(window.location.hash);
  if (!match) return undefined;
  window.history.replaceState(null, '', `#${match[2] ?? 'now'}`);
  try {
    return decodeURIComponent(match[1]!);
  } catch {
    return match[1];
  }
}
