// Preloaded into the agent on a machine whose power is cut (`node --import`). Writes the store's current activity to a
// file in memory, so that a cut can be placed within it. Changes nothing else.
import { openSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename } from 'node:path';

const { prototype } = createRequire('/usr/lib/tagferry/dist/main.js')('better-sqlite3');
const { exec, prepare, pragma, transaction } = prototype;
const WIDTH = 60;
let file;
/** Operations of the current transaction so far. */
const done = new Set();

function say(words) {
  try {
    file ??= openSync('/run/tagferry/doing', 'w');
    writeSync(file, `${words.padEnd(WIDTH)}\n`, 0);
  } catch {
    // A verb run by an operator, not the service.
  }
}

const KINDS = [
  [/^INSERT INTO log\b/i, 'values'],
  [/^INSERT INTO segment\b/i, 'segments'],
  [/^DELETE FROM span\b/i, 'spans away'],
  [/^DELETE FROM (log|segment)\b|^INSERT.* INTO (segment_progress|span_gone)\b/i, 'settled'],
  [/^INSERT OR IGNORE INTO segment\b/i, 'carried'],
  [/^INSERT INTO inbox_event\b/i, 'event'],
  [/^INSERT INTO inbox_attempt\b|^INSERT OR REPLACE INTO inbox_progress\b/i, 'reaction'],
];

/** Returns the activity, using the terms from the architecture page. */
function nameOf(database) {
  const name = basename(database.name);
  if (/\.new$/.test(name)) return 'salvage';
  if (/^inbox/.test(name)) return done.has('event') ? 'event' : done.has('reaction') ? 'reaction' : 'inbox';
  if (done.has('carried')) return 'salvage';
  if (done.has('segments')) return done.has('spans away') ? 'compaction' : 'flush';
  if (done.has('settled')) return 'settlement';
  return 'values';
}

prototype.prepare = function (text) {
  const statement = prepare.call(this, text);
  const kind = KINDS.find(([like]) => like.test(text.trim()))?.[1];
  if (kind === undefined) return statement;
  const { run } = statement;
  statement.run = function (...given) {
    const result = run.apply(this, given);
    if (!done.has(kind)) {
      done.add(kind);
      say(nameOf(statement.database));
    }
    return result;
  };
  return statement;
};

prototype.transaction = function (work) {
  const whole = transaction.call(this, work);
  // Our code never starts a transaction in any other way.
  return (...given) => {
    done.clear();
    say(nameOf(this));
    try {
      return whole.apply(this, given);
    } finally {
      done.clear();
      say('idle');
    }
  };
};

/** Reports an activity that is not a separate transaction. */
const during = (words, work) => {
  say(words);
  try {
    return work();
  } finally {
    say('idle');
  }
};
prototype.exec = function (text) {
  return /incremental_vacuum/.test(text) ? during('vacuum', () => exec.call(this, text)) : exec.call(this, text);
};
prototype.pragma = function (text, options) {
  const call = () => pragma.call(this, text, options);
  return /^wal_checkpoint/.test(text) ? during('checkpoint', call) : call();
};
