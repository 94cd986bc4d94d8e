/** Certificates in use: what each is for, and when it expires. Whoever loads a certificate, or is shown one, reports it here. */
import { X509Certificate } from 'node:crypto';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';

export interface CertificateInUse {
  /** `ops`, `ingest`, `webhook`, `platform`, or `source` and the name of a source of tags.yaml. */
  use: string;
  /** Of its end, by the wall clock. */
  endsMs: number;
}

const DAY_MS = 86_400_000;
/** Warnings begin so long before the end. */
const SOON_MS = 14 * DAY_MS;

export class Certificates {
  readonly #ends = new Map<string, number>();

  note(use: string, endsMs: number | undefined): void {
    if (endsMs !== undefined && Number.isFinite(endsMs)) this.#ends.set(use, endsMs);
  }

  /** The earliest first. */
  list(): CertificateInUse[] {
    return [...this.#ends].map(([use, endsMs]) => ({ use, endsMs })).sort((a, b) => a.endsMs - b.endsMs);
  }
}

/** When the first certificate of a PEM text ends; `undefined` if it holds none. */
export function pemEndsMs(pem: string | Buffer): number | undefined {
  try {
    return validMs(new X509Certificate(pem).validTo);
  } catch {
    return undefined;
  }
}

/** The earlier of two ends that may be unknown. */
export function earlierMs(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}

/** When the certificate ends that the other side of a TLS connection has shown. */
export function peerEndsMs(socket: object): number | undefined {
  if (!('getPeerCertificate' in socket)) return undefined;
  const { valid_to: end } = (socket as { getPeerCertificate(): Partial<PeerCertificate> }).getPeerCertificate();
  return end === undefined ? undefined : validMs(end);
}

/** Checks the identity of a server as Node does, and tells when its certificate ends. */
export function tellingIdentity(tell: (endsMs: number | undefined) => void): typeof checkServerIdentity {
  return (host, certificate) => {
    tell(validMs(certificate.valid_to));
    return checkServerIdentity(host, certificate);
  };
}

export function endsSoon(endsMs: number, nowMs: number): boolean {
  return endsMs - nowMs < SOON_MS;
}

/** `expires in 3 days`, `expired yesterday`. */
export function expiryText(endsMs: number, nowMs: number): string {
  const days = Math.floor(Math.abs(endsMs - nowMs) / DAY_MS);
  if (endsMs > nowMs) return days === 0 ? 'expires within a day' : `expires in ${days} ${days === 1 ? 'day' : 'days'}`;
  if (days === 0) return 'expired within the last day';
  return days === 1 ? 'expired yesterday' : `expired ${days} days ago`;
}

/** A sentence for each certificate that ends soon or has ended, for people. */
export function certificateNotes(certificates: readonly CertificateInUse[], nowMs: number): string[] {
  return certificates
    .filter(({ endsMs }) => endsSoon(endsMs, nowMs))
    .map(
      ({ use, endsMs }) => `the certificate of ${use} ${expiryText(endsMs, nowMs)} (${new Date(endsMs).toISOString()})`,
    );
}

function validMs(text: string): number | undefined {
  const ms = Date.parse(text);
  return Number.isFinite(ms) ? ms : undefined;
}
