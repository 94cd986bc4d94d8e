import { createHash } from 'node:crypto';
import type { Clock } from '../clock.ts';
import { messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { readRegularFile } from '../regular-file.ts';

/** PEM files of a listener's own https, and the setting that names the first: `WEBHOOK_TLS` for `WEBHOOK_TLS_CERT`. */
export interface CertificateFiles {
  certFile: string;
  keyFile: string;
  settings: string;
  /** Told of each pair that comes into force: when its certificate ends. */
  inForce?: (endsMs: number | undefined) => void;
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

/** Reads a pair and makes sure that TLS takes it. Throws `listener.certificate`. */
export async function readCertificate(files: CertificateFiles): Promise<CertificatePair> {
  try {
    const [cert, key] = await Promise.all([readRegularFile(files.certFile), readRegularFile(files.keyFile)]);
    process.getBuiltinModule('node:tls').createSecureContext({ cert, key });
    return { cert, key };
  } catch (error) {
    throw new TagferryError(`${files.certFile}, ${files.keyFile}: ${messageOf(error)}`, {
      code: 'listener.certificate',
      retryable: true,
      hint: `${files.settings}_CERT and ${files.settings}_KEY name PEM files that belong together and that this user may read.`,
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
  parts: { listener: string; clock: Clock; log: Logger; signal: AbortSignal },
): Promise<void> {
  const { listener, clock, log, signal } = parts;
  let applied = fingerprint(inForce);
  let complained = '';
  for (;;) {
    try {
      await clock.sleep(LOOK_EVERY_MS, signal);
    } catch {
      return;
    }
    try {
      const pair = await readCertificate(files);
      if (fingerprint(pair) === applied) continue;
      apply(pair);
      applied = fingerprint(pair);
      complained = '';
      log.info({ event: 'listener.certificate_reloaded', listener }, 'the listener uses the new certificate');
    } catch (error) {
      const text = messageOf(error);
      if (text === complained) continue;
      complained = text;
      log.warn({ event: 'listener.certificate_refused', listener, error: text }, 'the certificate stays the old one');
    }
  }
}

function fingerprint(pair: CertificatePair): string {
  return createHash('sha256').update(pair.cert).update('\0').update(pair.key).digest('hex');
}
