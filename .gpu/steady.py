import json, os, subprocess, sys, tempfile, re
from pathlib import Path
lib, cmd = os.path.abspath('dist/libgpushim.so'), os.path.abspath('dist/gpushim')
GPU='tests/gpu/'
W={'gpt2':['gpt2.py'],'gpt2-checkpoint':['gpt2.py','--checkpoint'],'resnet50':['resnet50.py'],'vit':['vit.py']}
def run(argv, steps, env, extra=()):
    with tempfile.TemporaryDirectory() as f:
        t=f+'/t.trace'; fig=f+'/f.json'
        e=dict(os.environ)|{'LD_PRELOAD':lib,'GPUSHIM_TRACE':t,'GPUSHIM_POLICY':'off'}|env
        d=subprocess.run([sys.executable,GPU+argv[0],*argv[1:],'--steps',str(steps),'--json',fig,*extra],env=e,capture_output=True,text=True,timeout=150)
        if d.returncode: return d.stderr[-300:]
        r=subprocess.run([cmd,'report','--format','json',t],capture_output=True,text=True,env=dict(os.environ))
        facts=dict(json.loads(r.stdout)['results'][0]['facts'])
        figs=json.loads(Path(fig).read_text())
        m=re.match(r'(\d+), (\d+) ns each',facts.get('torch.announcements','0, 0 ns each'))
        ms=figs['steps_ms']
        return int(m[1]),int(m[2]),sum(ms),len(ms),figs['median_step_ms'],{k:v for k,v in facts.items() if 'elastic' in k}
out=[]
for name in sys.argv[1].split(','):
    for label,env in (('auto, stacks',{'GPUSHIM_ELASTIC':'auto'}),('auto, no stacks',{'GPUSHIM_ELASTIC':'auto','GPUSHIM_STACKS':'off'}),('recorder, stacks',{}),('auto, no trace',{'GPUSHIM_ELASTIC':'auto','GPUSHIM_TENSORS':'off'})):
        if len(sys.argv)>2 and label not in sys.argv[2].split('|'): continue
        a=run(W[name],20,env); b=run(W[name],120,env)
        if isinstance(a,str) or isinstance(b,str): print(name,label,'FAILED',a,b,flush=True); continue
        n=b[0]-a[0]; ns=b[0]*b[1]-a[0]*a[1]; med=b[4]
        print(f"{name}, {label}: 20 steps {a[0]} of {a[1]} ns, 120 steps {b[0]} of {b[1]} ns; between {n} of {ns/max(n,1):.0f} ns; time of 100 later steps {b[2]-a[2]:.0f} ms, median {med:.1f}; share {ns/1e6/(b[2]-a[2])*100:.2f} %, of median {ns/1e6/(100*med)*100:.2f} % {b[5]}",flush=True)
