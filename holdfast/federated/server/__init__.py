"""What a server does with an aggregate before it moves the model: an optimizer's step, or noise that hides clients."""
