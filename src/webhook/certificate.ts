import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import type { Clock } from '../clock.ts';
import { messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';

/** PEM files of the listener's own https. */
export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface CertificatePair {
  cert: Buffer;
  key: Buffer;
}

/**
 * How often the files are looked at. Reading two small files beats watching: a renewal that swaps symbolic links, mounts or
 * whole folders is seen all the same.
 */
const LOOK_EVERY_MS = 10_000;

/** Reads a pair and makes sure that TLS takes it. Throws `webhook.certificate`. */
export async function readCertificate(files: CertificateFiles): Promise<CertificatePair> {
  try {
    const [cert, key] = await Promise.all([readFile(files.certFile), readFile(files.keyFile)]);
    createSecureContext({ cert, key });
    return { cert, key };
  } catch (error) {
    throw new TagferryError(`${files.certFile}, ${files.keyFile}: ${messageOf(error)}`, {
      code: 'webhook.certificate',
      retryable: true,
      hint: 'WEBHOOK_TLS_CERT and WEBHOOK_TLS_KEY name PEM files that belong together and that this user may read.',
      cause: error,
    });
  }
}

/**
 * Calls `apply` with every new pair until the signal fires. A pair that does not fit (the renewal has written one of two files)
 * leaves the old one in force; it is said once for each such pair.
 */
export async function watchCertificate(
  files: CertificateFiles,
  inForce: CertificatePair,
  apply: (pair: CertificatePair) => void,
  parts: { clock: Clock; log: Logger; signal: AbortSignal },
): Promise<void> {
  let applied = fingerprint(inForce);
  let complained = '';
  for (;;) {
    try {
      await parts.clock.sleep(LOOK_EVERY_MS, parts.signal);
    } catch {
      return;
    }
    try {
      const pair = await readCertificate(files);
      if (fingerprint(pair) === applied) continue;
      apply(pair);
      applied = fingerprint(pair);
      complained = '';
      parts.log.info({ event: 'webhook.certificate_reloaded' }, 'the listener uses the new certificate');
    } catch (error) {
      const text = messageOf(error);
      if (text === complained) continue;
      complained = text;
      parts.log.warn({ event: 'webhook.certificate_refused', error: text }, 'the certificate stays the old one');
    }
  }
}

function fingerprint(pair: CertificatePair): string {
  return createHash('sha256').update(pair.cert).update('\0').update(pair.key).digest('hex');
}
