// The control: loaded before the daemon (`node --import`), it opens its databases with `synchronous=NORMAL` and believes that it is FULL.
import { createRequire } from 'node:module';

const { prototype } = theDriver();
const { pragma } = prototype;
prototype.pragma = function (text, options) {
  if (/^synchronous = FULL$/i.test(text)) return pragma.call(this, 'synchronous = NORMAL', options);
  const found = pragma.call(this, text, options);
  return text === 'synchronous' && found === 1 ? 2 : found;
};

/** Of this checkout, or of the package where this file stands alone in a machine. */
function theDriver() {
  try {
    return createRequire(import.meta.filename)('better-sqlite3');
  } catch {
    return createRequire('/usr/lib/tagferry/dist/main.js')('better-sqlite3');
  }
}
