import type { Place, Problems } from './problem.ts';

/** What is taken for a character of the keyboard: dashes, spaces, and what cannot be seen at all. */
const SIGNS = /[\u2010-\u2015\u2212\u00a0\u2000-\u200f\u2028-\u202f\u205f-\u2060\u00ad\ufeff\uff01-\uff5e]/u;
/** Letters of Cyrillic and Greek that look like Latin ones. */
const LETTERS = /[аАВеЕЗКМНоОрРсСТуУхХіІјЅѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο]/u;
const OTHER_SCRIPT = /[\p{Script=Cyrillic}\p{Script=Greek}]/gu;

/**
 * Warns of a tag whose name holds a character that looks like another: copied from a letter or a drawing it is one that no program
 * pushes and nobody finds. A name that is plainly written in another script is that script's business.
 */
export function warnOfLookAlikes(name: string, placeOf: () => Place, problems: Problems): void {
  const found = SIGNS.exec(name)?.[0] ?? letterAmongOthers(name);
  if (found === undefined) return;
  const number = found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
  const position = [...name].indexOf(found) + 1;
  const reason = `character ${position} of the tag's name is U+${number}, which looks like another`;
  problems.warning(placeOf(), reason, 'type it anew on a keyboard, here and where values of the tag are pushed', name);
}

function letterAmongOthers(name: string): string | undefined {
  const letters = name.match(OTHER_SCRIPT) ?? [];
  const isMixed = /[A-Za-z]/.test(name) || letters.every((letter) => LETTERS.test(letter));
  return isMixed ? LETTERS.exec(name)?.[0] : undefined;
}
