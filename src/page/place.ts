/** The view in the URL fragment, which can be bookmarked: `#/tags=FT-101%2Fflow`. */

export const VIEWS = ['now', 'history', 'tags', 'events', 'assets', 'held', 'log', 'doctor'] as const;
export type View = (typeof VIEWS)[number];

export interface Place {
  view: View;
  /** Name of a tag. */
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

/** Removes OPS_TOKEN from `#token=…` in the address, so that history and screenshots do not contain it. Fragments are never sent. */
export function removeToken(): string | undefined {
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
