import type { Observed } from './observed.ts';
import { Remembered, type Rule } from './rule.ts';

/** A clock of the client's and a way over the network are no fault of it. */
const GRACE_MS = 1_000;
/** A token that is replaced is revoked within this time. */
const REVOKE_WITHIN_MS = 10_000;
/** What is about to die by itself need not be revoked. */
const WORTH_REVOKING_MS = 5_000;

const issues = (one: Observed) => one.isToken && one.status === 200 && typeof one.answer.access_token === 'string';
const lifeMs = (one: Observed) => Number(one.answer.expires_in ?? 0) * 1000;

/** How a client comes by its tokens, uses them, and lets go of them (platform 3.1 and 5). */
export const SESSION_RULES: readonly Rule[] = [
  {
    id: 'bearer',
    section: '5.5',
    requirement: 'every call of the API bears a token',
    begin: (tally) => ({
      see: (one) => {
        if (!one.isApi) return;
        if (one.bearer === undefined) tally.broken(`${one.name} without a token`);
        else tally.held();
      },
    }),
  },
  {
    id: 'expired-token',
    section: '5.6',
    requirement: 'no token is used after its life',
    begin: (tally) => {
      const endsMs = new Remembered<number>();
      return {
        see: (one) => {
          if (issues(one)) endsMs.set(String(one.answer.access_token), one.endedMs + lifeMs(one));
          if (!one.isApi || one.bearer === undefined) return;
          const endMs = endsMs.get(one.bearer);
          if (endMs === undefined) return;
          const lateMs = one.startedMs - endMs - GRACE_MS;
          if (lateMs > 0)
            tally.broken(`${one.name} with a token that had expired ${Math.ceil(lateMs / 1000)} s before`);
          else tally.held();
        },
      };
    },
  },
  {
    id: 'dead-token',
    section: '3.1',
    requirement: 'a token that was answered 401 is not used again',
    begin: (tally) => {
      const deadMs = new Remembered<number>();
      let isOpen = false;
      return {
        see: (one) => {
          if (!one.isApi || one.bearer === undefined) return;
          const knownMs = deadMs.get(one.bearer);
          // What was under way when the first refusal came is no sin.
          if (knownMs !== undefined && one.startedMs > knownMs)
            tally.broken(`${one.name} with a token that was refused before`);
          else if (knownMs === undefined && one.status === 401) {
            deadMs.set(one.bearer, one.endedMs);
            isOpen = true;
          } else if (knownMs === undefined && isOpen) {
            isOpen = false;
            tally.held();
          }
        },
      };
    },
  },
  {
    id: 'revoked-token',
    section: '3.1',
    requirement: 'a token that the client revoked is not used again',
    begin: (tally) => {
      const revokedMs = new Remembered<number>();
      return {
        see: (one) => {
          const token = one.form.get('token');
          if (one.isRevocation && token !== null && one.status === 200) {
            revokedMs.set(token, one.endedMs);
            tally.held();
          }
          if (!one.isApi || one.bearer === undefined) return;
          const atMs = revokedMs.get(one.bearer);
          if (atMs !== undefined && one.startedMs > atMs) tally.broken(`${one.name} with a token that it had revoked`);
        },
      };
    },
  },
  {
    id: 'replaced-token',
    section: '5.6',
    requirement: 'a token that is no longer needed is revoked',
    begin: (tally, { ownerOf }) => {
      const current = new Map<string, { token: string; endsMs: number }>();
      const replaced = new Remembered<{ atMs: number; leftMs: number }>();
      return {
        see: (one) => {
          if (issues(one)) {
            const token = String(one.answer.access_token);
            const owner = ownerOf(token);
            if (owner === undefined) return;
            const before = current.get(owner);
            const leftMs = before === undefined ? 0 : before.endsMs - one.endedMs;
            if (before !== undefined && leftMs > 0) replaced.set(before.token, { atMs: one.endedMs, leftMs });
            current.set(owner, { token, endsMs: one.endedMs + lifeMs(one) });
          }
          const token = one.form.get('token');
          if (one.isRevocation && token !== null) {
            if (replaced.delete(token)) tally.held();
            for (const [owner, { token: now }] of current) if (now === token) current.delete(owner);
          }
          // Dead already: there is nothing to revoke.
          if (one.isApi && one.status === 401 && one.bearer !== undefined) {
            replaced.delete(one.bearer);
            for (const [owner, { token: now }] of current) if (now === one.bearer) current.delete(owner);
          }
        },
        open: (nowMs) => {
          const isLate = (one: { atMs: number; leftMs: number }) =>
            one.leftMs > WORTH_REVOKING_MS && nowMs - one.atMs > REVOKE_WITHIN_MS;
          const late = [...replaced.entries()].filter(([, one]) => isLate(one)).length;
          return late === 0 ? undefined : `${late} replaced while they lived, and not revoked`;
        },
      };
    },
  },
  {
    id: 'refresh-once',
    section: '3.1',
    requirement: 'a refresh token is used once',
    begin: (tally) => {
      const used = new Remembered<true>();
      return {
        see: (one) => {
          const token = one.form.get('refresh_token');
          if (!one.isToken || token === null) return;
          if (used.get(token) !== undefined)
            tally.broken('a refresh token that was answered with its heir is used again');
          else tally.held();
          if (one.status === 200 && one.answer.refresh_token !== token) used.set(token, true);
        },
      };
    },
  },
  {
    id: 'new-tokens',
    section: '5.6',
    requirement: 'a token is kept for its life, not fetched for each call',
    begin: (tally, { ownerOf }) => {
      const last = new Map<string, { atMs: number; lifeMs: number; wasted: number }>();
      return {
        see: (one) => {
          if (!issues(one)) return;
          const owner = ownerOf(String(one.answer.access_token));
          if (owner === undefined) return;
          const before = last.get(owner);
          const isWaste = before !== undefined && one.endedMs - before.atMs < Math.min(before.lifeMs / 2, 30_000);
          const wasted = isWaste ? before.wasted + 1 : 0;
          last.set(owner, { atMs: one.endedMs, lifeMs: lifeMs(one), wasted });
          // Once or twice is a restart; again and again is a habit.
          if (wasted >= 5)
            tally.broken(`${wasted + 1} tokens one after another, each early in the life of the one before`);
          else tally.held();
        },
      };
    },
  },
  {
    id: 'wrong-credentials',
    section: '5.2',
    requirement: 'credentials that were refused are not tried again and again',
    begin: (tally) => {
      const refusedMs: number[] = [];
      return {
        see: (one) => {
          if (!one.isToken || one.form.get('grant_type') !== 'password' || one.entry.fault !== undefined) return;
          if (one.status === 200) {
            tally.held();
            return;
          }
          if (one.status !== 400 && one.status !== 401) return;
          refusedMs.push(one.endedMs);
          while (refusedMs.length > 0 && one.endedMs - refusedMs[0]! > 60_000) refusedMs.shift();
          if (refusedMs.length > 5) tally.broken(`${refusedMs.length} refused sign-ins within a minute`);
        },
      };
    },
  },
  {
    id: 'address',
    section: '5.5',
    requirement: 'no token, secret or password stands in an address',
    begin: (tally) => ({
      see: (one) => {
        const found = ['access_token', 'refresh_token', 'client_secret', 'password'].find((name) =>
          one.query.has(name),
        );
        if (found !== undefined) tally.broken(`${one.name}?${found}=…`);
        else tally.held();
      },
    }),
  },
];
