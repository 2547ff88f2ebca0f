// The search runs in a Worker, which a browser refuses to a page that was opened from the disk: a hidden frame then
// takes its place. The configuration names this file, so that the generator adds none from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      // both sides get copies, as from a Worker: each changes what it was sent
      inner.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.tell("message", copy));
      };
      const script = inner.document.createElement("script");
      script.src = String(address);
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.hand(data));
      };
      script.onerror = () => this.tell("error");
      inner.document.body.append(script);
    }
    tell(kind, data) {
      const event = new MessageEvent(kind, { data });
      if (this["on" + kind]) this["on" + kind](event);
      this.dispatchEvent(event);
    }
    hand(data) {
      // later, as a Worker would: who sends is not yet ready for the answer
      setTimeout(() => {
        const inner = this.frame.contentWindow;
        if (inner) inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }
    postMessage(data) {
      const copy = structuredClone(data);
      if (this.ready) this.hand(copy);
      else this.waiting.push(copy);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
