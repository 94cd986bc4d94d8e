/** Certificates in use, with purpose and expiry. Components that load or receive a certificate report it here. */
import { X509Certificate } from 'node:crypto';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';

export interface CertificateInUse {
  /** `ops`, `ingest`, `webhook`, `platform`, or `source` followed by a source name from tags.yaml. */
  use: string;
  /** Wall-clock time of expiry, in milliseconds. */
  endsMs: number;
}

const DAY_MS = 86_400_000;
/** Time before expiry at which warnings start. */
const SOON_MS = 14 * DAY_MS;

export class Certificates {
  readonly #ends = new Map<string, number>();

  note(use: string, endsMs: number | undefined): void {
    if (endsMs !== undefined && Number.isFinite(endsMs)) this.#ends.set(use, endsMs);
  }

  /** Returns the certificates sorted by expiry. */
  list(): CertificateInUse[] {
    return [...this.#ends].map(([use, endsMs]) => ({ use, endsMs })).sort((a, b) => a.endsMs - b.endsMs);
  }
}

/** Returns the expiry of the first certificate in a PEM text or a DER file, or `undefined` if there is none. */
export function pemEndsMs(pem: string | Buffer): number | undefined {
  try {
    return validMs(new X509Certificate(pem).validTo);
  } catch {
    return undefined;
  }
}

/** Returns the earlier of two optional times. */
export function earlierMs(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}

/** Returns the expiry of the peer certificate of a TLS connection. */
export function peerEndsMs(socket: object): number | undefined {
  if (!('getPeerCertificate' in socket)) return undefined;
  const { valid_to: end } = (socket as { getPeerCertificate(): Partial<PeerCertificate> }).getPeerCertificate();
  return end === undefined ? undefined : validMs(end);
}

/** Checks a server's identity as Node does and reports when its certificate expires. */
export function identityCheckWithExpiry(tell: (endsMs: number | undefined) => void): typeof checkServerIdentity {
  return (host, certificate) => {
    tell(validMs(certificate.valid_to));
    return checkServerIdentity(host, certificate);
  };
}

export function endsSoon(endsMs: number, nowMs: number): boolean {
  return endsMs - nowMs < SOON_MS;
}

/** Formats `expires in 3 days` or `expired yesterday`. */
export function expiryText(endsMs: number, nowMs: number): string {
  const days = Math.floor(Math.abs(endsMs - nowMs) / DAY_MS);
  if (endsMs > nowMs) return days === 0 ? 'expires within a day' : `expires in ${days} ${days === 1 ? 'day' : 'days'}`;
  if (days === 0) return 'expired within the last day';
  return days === 1 ? 'expired yesterday' : `expired ${days} days ago`;
}

/** Returns a sentence for each certificate that has expired or expires soon. */
export function certificateNotes(certificates: readonly CertificateInUse[], nowMs: number): string[] {
  return certificates
    .filter(({ endsMs }) => endsSoon(endsMs, nowMs))
    .map(
      ({ use, endsMs }) => `the ${use} certificate ${expiryText(endsMs, nowMs)} (${new Date(endsMs).toISOString()})`,
    );
}

function validMs(text: string): number | undefined {
  const ms = Date.parse(text);
  return Number.isFinite(ms) ? ms : undefined;
}
