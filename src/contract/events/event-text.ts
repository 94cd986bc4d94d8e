/**
 * Reads an event's JSON within bounds. A body is at most 1 MiB, but `{},{},…` takes twenty times its length in memory once it is
 * parsed. The bound is checked before parsing. The largest events of platform 6.3 list the values of one post: of 1 MiB they have 54,000 marks,
 * three per value.
 */
const MAX_MARKS = 100_000;
/** An empty object with its place in a list. */
const BYTES_PER_MARK = 64;
/** Its text (two bytes per character), the strings parsed from it, and the bytes sent to a command or a receiver. */
const BYTES_PER_CHARACTER = 4;

const VALUE_MARKS = ',[{';

/** Number of brackets, braces and commas outside strings: a bound for the number of values. */
export function countMarks(json: string): number {
  return countOutsideStrings(json, VALUE_MARKS);
}

/** Number of characters of `marks` outside the strings of a JSON text. */
export function countOutsideStrings(json: string, marks: string): number {
  const codes = Array.from(marks, (mark) => mark.charCodeAt(0));
  let count = 0;
  eachOutsideStrings(json, (code) => {
    if (codes.includes(code)) count++;
  });
  return count;
}

function eachOutsideStrings(json: string, visit: (code: number) => void): void {
  let inText = false;
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (inText) {
      if (code === 0x5c) i++;
      else if (code === 0x22) inText = false;
    } else if (code === 0x22) inText = true;
    else visit(code);
  }
}

/** Whether an event may be parsed. */
export function isWithinBounds(json: string): boolean {
  return countMarks(json) <= MAX_MARKS;
}

/** Levels of objects and lists. Events of platform 6.3 have 6. */
export function depthOf(json: string): number {
  let depth = 0;
  let deepest = 0;
  eachOutsideStrings(json, (code) => {
    if (code === 0x5b || code === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (code === 0x5d || code === 0x7d) depth--;
  });
  return deepest;
}

/** Memory that an event takes while its reactions run, in bytes. */
export function memoryOf(json: string): number {
  return json.length * BYTES_PER_CHARACTER + Math.min(MAX_MARKS, countMarks(json)) * BYTES_PER_MARK;
}

/** The parsed event; `undefined` if the text is not JSON or exceeds the bounds. */
export function parseEvent(json: string): unknown {
  if (!isWithinBounds(json)) return undefined;
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
