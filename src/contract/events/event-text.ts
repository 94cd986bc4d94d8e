/**
 * Maximum number of brackets, braces and commas in an event, checked before parsing. A body has at most 1 MiB, but
 * `{},{},…` requires twenty times its length in memory when parsed. The largest events of platform 6.3 have 54,000
 * marks in 1 MiB, three per value.
 */
const MAX_MARKS = 100_000;
/** Memory of an empty object, including its place in a list. */
const BYTES_PER_MARK = 64;
/**
 * Memory per character: the text (two bytes), the strings parsed from it, and the bytes sent to a command or a
 * receiver.
 */
const BYTES_PER_CHARACTER = 4;

const VALUE_MARKS = ',[{';

/**
 * Returns the number of brackets, braces and commas outside strings, which is an upper bound for the number of values.
 */
export function countMarks(json: string): number {
  return countOutsideStrings(json, VALUE_MARKS);
}

/** Returns the number of characters of `marks` outside strings. */
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

/** Returns the nesting depth. Events of platform 6.3 have a depth of 6. */
export function depthOf(json: string): number {
  let depth = 0;
  let deepest = 0;
  eachOutsideStrings(json, (code) => {
    if (code === 0x5b || code === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (code === 0x5d || code === 0x7d) depth--;
  });
  return deepest;
}

/** Returns the memory required by an event during its reactions, in bytes. */
export function memoryOf(json: string): number {
  return json.length * BYTES_PER_CHARACTER + Math.min(MAX_MARKS, countMarks(json)) * BYTES_PER_MARK;
}

/** Returns the parsed event, or undefined if the text is not JSON or exceeds the limits. */
export function parseEvent(json: string): unknown {
  if (!isWithinBounds(json)) return undefined;
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
