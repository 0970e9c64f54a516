import { signIn, signOut, type Session } from "./session";

// A tab that tries an app as one of its callers gets its session from the tab that opened it, by messages between two
// windows of one origin. So the credential is in no URL, and the session of the operator stays in its own tab.

const mark = "#handover";
const ready = "stoa.handover.ready";

// isSession reports whether a value from another window is a session of an app.
function isSession(value: unknown): value is Session {
  return typeof value === "object" && value !== null && "token" in value && typeof value.token === "string" && "app" in value && typeof value.app === "string" && !("operator" in value);
}

// openTab opens the playground in another tab and gives it the session that next becomes. It must be called while a press
// is handled; null = the browser has blocked the tab.
export function openTab(next: Promise<Session>): Window | null {
  // Who opens the tab handles an error of the session.
  next.catch(() => {});
  const tab = window.open(`/console/playground${mark}`, "_blank");
  if (!tab) return null;
  const answer = (e: MessageEvent) => {
    if (e.source !== tab || e.origin !== location.origin || e.data !== ready) return;
    removeEventListener("message", answer);
    next.then(
      (s) => tab.postMessage(s, location.origin),
      () => tab.close(),
    );
  };
  addEventListener("message", answer);
  return tab;
}

// receiveSession takes the session that the tab which opened this one gives it, if it was opened for that.
export function receiveSession() {
  if (location.hash !== mark) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  const opener: unknown = window.opener;
  if (!opener) return;
  // A browser copies the storage of a tab into one that it opens: that session is not this tab's.
  signOut();
  const take = (e: MessageEvent) => {
    if (e.source !== opener || e.origin !== location.origin || !isSession(e.data)) return;
    removeEventListener("message", take);
    signIn({ token: e.data.token, app: e.data.app }, false);
  };
  addEventListener("message", take);
  (opener as Window).postMessage(ready, location.origin);
}
