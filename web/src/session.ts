import { renew, type Renewal } from "./oidc";
import { createStore } from "./store";

// Session is who the console speaks for. The credential is kept in memory; where the user asks for it, in
// sessionStorage, which ends with the tab. It is never in a cookie or a URL.
export interface Session {
  // token is an API key or a token; "" = the app needs none.
  token: string;
  // app is the name for /apps/{app}; "" = the app of the credential.
  app: string;
  // operator = the credential is the platform operator's: it is for the admin API alone.
  operator?: boolean;
}

// renewal gets the next token of a session that began at a provider. It is kept in memory alone.
let renewal: Renewal | null = null;
let timer = 0;

// renewWith renews the session's token a minute before it expires, or at half of a shorter life.
export function renewWith(next: Renewal | null) {
  renewal = next;
  clearTimeout(timer);
  if (!next) return;
  const left = next.expires - Date.now();
  timer = window.setTimeout(
    () =>
      void renew(next).then(
        (fresh) => {
          const now = session.get();
          if (!now || renewal !== next) return;
          const changed = { ...now, token: fresh.token };
          if (isKept()) signIn(changed, true);
          else session.set(changed);
          renewWith(fresh.renewal);
        },
        // The token stays until it expires; then the answer is 401, and the person signs in again.
        () => {},
      ),
    Math.max(left - 60_000, left / 2, 1000),
  );
}

function isKept(): boolean {
  try {
    return sessionStorage.getItem(storageKey) !== null;
  } catch {
    return false;
  }
}

const storageKey = "stoa.session";

function load(): Session | null {
  try {
    const saved: unknown = JSON.parse(sessionStorage.getItem(storageKey) ?? "null");
    if (saved && typeof saved === "object" && "token" in saved && "app" in saved) {
      return { token: String(saved.token), app: String(saved.app), operator: "operator" in saved && saved.operator === true };
    }
  } catch {
    // Storage may be forbidden or hold something else: then the user signs in again.
  }
  return null;
}

export const session = createStore<Session | null>(load());

// refused says that the server has refused the credential of the session: it has expired or was revoked. What the session
// has read is hidden then, and what was typed waits for the same person to sign in again.
export const refused = createStore(false);

// refuse is called with the session whose credential was refused.
export function refuse(s: Session) {
  if (s !== session.get() || refused.get()) return;
  renewWith(null);
  forget();
  refused.set(true);
}

function forget() {
  try {
    sessionStorage.removeItem(storageKey);
  } catch {
    // There is nothing to remove.
  }
}

// isSamePerson reports whether two sessions are of one person of one app. Only tokens say whose they are.
export function isSamePerson(a: Session, b: Session): boolean {
  const [one, other] = [personOf(a), personOf(b)];
  return one !== "" && one === other;
}

function personOf(s: Session): string {
  try {
    const claims = JSON.parse(atob(s.token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/"))) as Record<string, unknown>;
    if (typeof claims["sub"] !== "string") return "";
    const { iss, sub, aud, app_id, tenant_id } = claims;
    return JSON.stringify([s.app, !!s.operator, iss, sub, aud, app_id, tenant_id]);
  } catch {
    return s.token ? "" : JSON.stringify([s.app, "anyone"]);
  }
}

export function signIn(next: Session, keepForTab: boolean) {
  try {
    // A session without a credential has nothing to hide: it survives a reload.
    if (keepForTab || !next.token) sessionStorage.setItem(storageKey, JSON.stringify(next));
    else sessionStorage.removeItem(storageKey);
  } catch {
    // Without storage the session lives as long as the page.
  }
  session.set(next);
  refused.set(false);
}

export function signOut() {
  renewWith(null);
  forget();
  session.set(null);
  refused.set(false);
}
