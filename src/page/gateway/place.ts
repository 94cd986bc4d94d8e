/** Which of the page's views is looked at, as the address's fragment says: `#/tags=FT-101%2Fflow`; it can be kept as a bookmark. */

export const VIEWS = ['now', 'history', 'tags', 'events', 'assets', 'held', 'log', 'doctor'] as const;
export type View = (typeof VIEWS)[number];

export interface Place {
  view: View;
  /** What of it: the name of a tag. */
  of: string | undefined;
}

export function placeOf(fragment: string): Place {
  const [name, ...of] = fragment.replace(/^#\/?/, '').split('=');
  const view = VIEWS.find((each) => each === name);
  return { view: view ?? 'now', of: view && of.length > 0 ? decoded(of.join('=')) : undefined };
}

export function addressOf(view: View, of?: string): string {
  return `#/${view}${of === undefined ? '' : `=${encodeURIComponent(of)}`}`;
}

const TOKEN = /^#token=([^&]+)(?:&(.*))?$/;

/**
 * OPS_TOKEN of `#token=…`, taken out of the address at once: neither history nor a picture of the screen has it. A fragment is sent to
 * nobody, which a query is.
 */
export function takeToken(): string | undefined {
  const match = TOKEN.exec(window.location.hash);
  if (!match) return undefined;
  window.history.replaceState(null, '', `#/${match[2] ?? 'now'}`);
  return decoded(match[1]!);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
