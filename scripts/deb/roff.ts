/**
 * Escapes text for a manual page: dashes, requests at the start of a line, and characters outside ASCII. Long words can
 * break after a sign, for narrow windows.
 */
export function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll(/\S{20,}/g, (word) => word.replaceAll(/[,/:_={[](?=[\w"{[])/g, '$&\\:'))
    .replaceAll('-', '\\-')
    .replaceAll(/^([.'])/gm, '\\&$1')
    .replaceAll(
      /[^\n\x20-\x7e]/gu,
      (sign) => `\\[u${sign.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}]`,
    );
}

/** Returns the first line of a text as a sentence. */
export function sentence(text: string): string {
  const first = text.split('\n')[0]!.trim();
  return roff(`${first[0]!.toUpperCase()}${first.slice(1)}${/[.!?]$/.test(first) ? '' : '.'}`);
}
