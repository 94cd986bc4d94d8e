/**
 * Text as manual pages write it: dashes are dashes, nothing at the start of a line is a request, the rest is ASCII with names. Long words
 * may be broken after a sign, for narrow windows.
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

/** The first line of a text as a sentence. */
export function sentence(text: string): string {
  const first = text.split('\n')[0]!.trim();
  return roff(`${first[0]!.toUpperCase()}${first.slice(1)}${/[.!?]$/.test(first) ? '' : '.'}`);
}
