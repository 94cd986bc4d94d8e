import { createHash } from 'node:crypto';
import type { Clock } from '../clock.ts';
import { messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { readRegularFile } from '../regular-file.ts';

/** PEM files for HTTPS on a listener, and the prefix of their settings, such as `WEBHOOK_TLS` for `WEBHOOK_TLS_CERT`. */
export interface CertificateFiles {
  certFile: string;
  keyFile: string;
  settings: string;
  /** Called with the expiry of each certificate that is applied. */
  inForce?: (endsMs: number | undefined) => void;
}

export interface CertificatePair {
  cert: Buffer;
  key: Buffer;
}

/**
 * Interval between checks of the files. Unlike a file watch, polling detects renewals that swap symbolic links,
 * mounts or folders.
 */
const CHECK_INTERVAL_MS = 10_000;

/** Reads a certificate and key and checks that TLS accepts them. Throws `listener.certificate`. */
export async function readCertificate(files: CertificateFiles): Promise<CertificatePair> {
  try {
    const [cert, key] = await Promise.all([readRegularFile(files.certFile), readRegularFile(files.keyFile)]);
    process.getBuiltinModule('node:tls').createSecureContext({ cert, key });
    return { cert, key };
  } catch (error) {
    throw new TagferryError(`${files.certFile}, ${files.keyFile}: ${messageOf(error)}`, {
      code: 'listener.certificate',
      retryable: true,
      hint: `Set ${files.settings}_CERT and ${files.settings}_KEY to a matching pair of PEM files that the service user can read.`,
      cause: error,
    });
  }
}

/**
 * Calls `apply` with each new pair until the signal aborts. If the files do not match, for example in the middle of a
 * renewal, the previous pair stays in use and the problem is logged once.
 */
export async function watchCertificate(
  files: CertificateFiles,
  inForce: CertificatePair,
  apply: (pair: CertificatePair) => void,
  parts: { listener: string; clock: Clock; log: Logger; signal: AbortSignal },
): Promise<void> {
  const { listener, clock, log, signal } = parts;
  let applied = fingerprint(inForce);
  let reported = '';
  for (;;) {
    try {
      await clock.sleep(CHECK_INTERVAL_MS, signal);
    } catch {
      return;
    }
    try {
      const pair = await readCertificate(files);
      if (fingerprint(pair) === applied) continue;
      apply(pair);
      applied = fingerprint(pair);
      reported = '';
      log.info({ event: 'listener.certificate_reloaded', listener }, 'listener certificate reloaded');
    } catch (error) {
      const text = messageOf(error);
      if (text === reported) continue;
      reported = text;
      log.warn(
        { event: 'listener.certificate_refused', listener, error: text },
        'failed to load the new certificate, keeping the previous one',
      );
    }
  }
}

function fingerprint(pair: CertificatePair): string {
  return createHash('sha256').update(pair.cert).update('\0').update(pair.key).digest('hex');
}
