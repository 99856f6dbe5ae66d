// A page that is opened as a file may start no workers, and the site's search is one. There it runs in a hidden frame
// instead, whose window has a worker's names. The plugin "offline" would fetch such a script from a network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #loaded;
    #window;

    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.#window = frame.contentWindow;
      this.#window.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.#loaded = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src: address, onload: resolve, onerror: reject });
        frame.contentDocument.head.append(script);
      });
    }

    async postMessage(data) {
      await this.#loaded;
      this.#window.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
